"""Steps with a loss or gradient that is not finite."""

import json
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import write_text

FILE = "non_finite.jsonl"
_ROWS_SHOWN = 8


def non_finite_error(trainer: Trainer, loss: float, gradient_norm: float) -> UserError:
    """Return an error with the step and its rows. Write the rows to non_finite.jsonl in the run's folder."""
    step, module = trainer.global_step + 1, trainer.lightning_module
    where = _write_rows(trainer, module, step)
    return UserError(
        f"step {step}: the loss is {loss:.3g} and its gradient's norm {gradient_norm:.3g}, in {where}: "
        "lower optimizer.lr, or check these rows"
    )


def _write_rows(trainer: Any, module: Any, step: int) -> str:
    """Write the rows of all devices to the file, and return their numbers for a message."""
    batch = module.batch
    if batch.rows is None:
        return "unknown rows"
    dataset = trainer.datamodule.sets[batch.dataset or ""]
    rows = batch.gather(torch.from_numpy(batch.rows).to(module.device)).tolist()
    numbers = [row + 1 for row in rows]
    if trainer.is_global_zero:
        line = {"step": step, "rows": numbers, "sentences": [list(dataset.rows[row]) for row in rows]}
        write_text(Path(trainer.default_root_dir) / FILE, json.dumps(line, ensure_ascii=False) + "\n")
    more = f" and {len(rows) - _ROWS_SHOWN} more (all are in {FILE})" if len(rows) > _ROWS_SHOWN else ""
    return f"rows {', '.join(map(str, numbers[:_ROWS_SHOWN]))}{more} of {dataset.train}"
