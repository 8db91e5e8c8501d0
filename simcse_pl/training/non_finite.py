"""Steps with a loss or gradient that is not finite: stop the run, or skip the steps and count them."""

import json
import logging
from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer

from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)

FILE = "non_finite.jsonl"
_ROWS_SHOWN = 8


class NonFiniteSteps:
    """Stop the run at such a step (`error`), or leave the weights unchanged and count it in `skipped` (`skip`).

    The rows of such steps are written to non_finite.jsonl in the run's folder.
    """

    def __init__(self, action: str) -> None:
        self.action = action
        self.skipped = 0

    def handle(self, trainer: Trainer, loss: float, gradient_norm: float) -> None:
        """Raise UserError with the step and its rows, or drop the gradients before the optimizer's step."""
        step = trainer.global_step + 1
        rows = self._record(trainer, step, loss, gradient_norm)
        what = f"step {step}: the loss is {loss:.3g} and its gradient's norm {gradient_norm:.3g}, in {rows}"
        if self.action == "error":
            raise UserError(f"{what}: lower optimizer.lr, check these rows, or set module.on_non_finite=skip")
        for optimizer in trainer.optimizers:
            optimizer.zero_grad(set_to_none=True)  # its step then does nothing
        self.skipped += 1
        if self.skipped == 1 and trainer.is_global_zero:
            log.warning("%s: skipped. train/skipped_steps counts such steps, and %s lists their rows", what, FILE)

    def _record(self, trainer: Trainer, step: int, loss: float, gradient_norm: float) -> str:
        """Write the batch's rows to the file, and return their numbers for a message."""
        datamodule: Any = getattr(trainer, "datamodule", None)
        if datamodule is None:
            return "unknown rows"
        batch = trainer.fit_loop.epoch_loop.batch_progress.current.ready - 1
        own, rows = datamodule.rows_of_batch(trainer.current_epoch, batch)
        if trainer.is_global_zero:
            line: dict[str, Any] = {"step": step, "loss": str(loss), "gradient_norm": str(gradient_norm)}
            line |= {"rows": [row + 1 for row in rows], "sentences": [list(own.rows[row]) for row in rows]}
            with (Path(trainer.default_root_dir) / FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        more = f" and {len(rows) - _ROWS_SHOWN} more (all are in {FILE})" if len(rows) > _ROWS_SHOWN else ""
        return f"rows {', '.join(str(row + 1) for row in rows[:_ROWS_SHOWN])}{more} of {own.train}"
