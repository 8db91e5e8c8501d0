"""Steps whose loss or gradient is not finite: the run stops with their rows, or skips and counts them."""

import json
import logging
from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer

from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)

ON_BAD_STEP = ("error", "skip")
FILE = "non_finite.jsonl"

_ROWS_SHOWN = 8


class NonFiniteSteps:
    """What is done about them; their rows go to non_finite.jsonl in the run's folder, a line a step.

    Args:
        action: `error` to stop the run, or `skip` to leave the weights as they are and go on.

    Attributes:
        skipped: how many have been.

    Raises:
        UserError: an unknown action.
    """

    def __init__(self, action: str) -> None:
        if action not in ON_BAD_STEP:
            raise UserError(f"on_non_finite={action}: choose one of {', '.join(ON_BAD_STEP)}")
        self.action = action
        self.skipped = 0

    def handle(self, trainer: Trainer, loss: float, gradient_norm: float) -> None:
        """Stop, or leave the step without gradients; the first that is skipped is warned of.

        Args:
            trainer: in the step, before its optimizer's.
            loss: of the whole batch.
            gradient_norm: of all weights.

        Raises:
            UserError: with the step and its rows, where steps are not skipped.
        """
        step = trainer.global_step + 1
        rows = self._record(trainer, step, loss, gradient_norm)
        what = f"step {step}: the loss is {loss:.3g}, its gradient's norm {gradient_norm:.3g}, in the batch of {rows}"
        if self.action == "error":
            raise UserError(f"{what}: lower optimizer.lr, look at these rows, or set on_non_finite=skip")
        for optimizer in trainer.optimizers:
            optimizer.zero_grad(set_to_none=True)  # which it then has nothing to do for
        self.skipped += 1
        if self.skipped == 1 and trainer.is_global_zero:
            log.warning("%s: skipped; further ones are counted in train/skipped_steps, rows in %s", what, FILE)

    def _record(self, trainer: Trainer, step: int, loss: float, gradient_norm: float) -> str:
        """Write the batch's rows down, and say which they are; of a trainer without our data there is no telling."""
        datamodule: Any = getattr(trainer, "datamodule", None)
        if datamodule is None:
            return "unknown rows"
        progress = trainer.fit_loop.epoch_loop.batch_progress.current
        rows = datamodule.rows_of_batch(trainer.current_epoch, progress.ready - 1)
        if trainer.is_global_zero:
            line = {
                "step": step,
                "loss": str(loss),
                "gradient_norm": str(gradient_norm),
                "rows": [row + 1 for row in rows],
                "sentences": [list(datamodule.rows.rows[row]) for row in rows],
            }
            with (Path(trainer.default_root_dir) / FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        more = f" and {len(rows) - _ROWS_SHOWN} more ({FILE} has all)" if len(rows) > _ROWS_SHOWN else ""
        return f"rows {', '.join(str(row + 1) for row in rows[:_ROWS_SHOWN])}{more} of {datamodule.train}"
