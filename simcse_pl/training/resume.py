"""Going on with a run that was interrupted: from which checkpoint, and with which curves."""

import csv
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from simcse_pl.models.encoder_files import read_torch_file
from simcse_pl.results.run_files import CURVES_FILE, WANDB_FILE
from simcse_pl.sweeps.jobs import given_options
from simcse_pl.tracking.csv_logger import read_rows
from simcse_pl.utils.distributed import is_first_process
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write, remove_half_written

log = logging.getLogger(__name__)

LAST_CHECKPOINT = Path("checkpoints") / "last.ckpt"


class RunMetadata(Callback):
    """What checkpoints know of their run beside its weights.

    Args:
        options: that the run was given.

    Attributes:
        before: what was measured before training.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self.options = given_options(options)
        self.before: dict[str, float] = {}

    @property
    def state_key(self) -> str:
        """Under which checkpoints hold it."""
        return "run"

    def state_dict(self) -> dict[str, Any]:
        """What goes into a checkpoint."""
        return {"options": self.options, "before": self.before}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The options are this run's own."""
        self.before = state_dict["before"]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Keep the curves' steps right: where a run goes on between two epochs, Lightning counts one twice."""
        _count_steps(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count the step that has just been trained, too; Lightning does so after the validation."""
        _count_steps(trainer)

    on_test_start = on_validation_start


def _count_steps(trainer: Trainer) -> None:
    trainer.fit_loop.epoch_loop._batches_that_stepped = trainer.global_step


def find_checkpoint(resume: str | None, folder: Path, options: Sequence[str]) -> Path | None:
    """The checkpoint that a run goes on from; None for a run from the start.

    The curves in the folder are cut where the checkpoint was written; what goes on with no checkpoint of the folder's
    own will be a W&B run of its own.

    Args:
        resume: a checkpoint; `auto` for the last in the folder, if there is one; None for a run from the start.
        folder: of the run.
        options: that the run is given.

    Raises:
        UserError: no such checkpoint, a damaged one, or a folder that holds another run's.
    """
    last = folder / LAST_CHECKPOINT
    if is_first_process():
        remove_half_written(folder, last.parent, folder / "encoder")
    if resume is None or resume == "auto":
        checkpoint = last if resume and last.is_file() else None
    elif not Path(resume).is_file():
        raise UserError(f"resume: no file {resume}")
    else:
        checkpoint = Path(resume)
    own = checkpoint is not None and last.is_file() and checkpoint.samefile(last)
    if not own and resume != "auto" and is_first_process() and (folder / CURVES_FILE).exists():
        raise UserError(
            f"{folder} holds a run already, whose curves would be lost: choose another hydra.run.dir, "
            "or go on with it by resume=auto"
        )
    if not own and is_first_process():
        (folder / WANDB_FILE).unlink(missing_ok=True)
    if checkpoint is None:
        _cut_curves(folder, steps=-1)
        return None
    match read_torch_file(checkpoint, mmap=True):
        case {
            "global_step": int(steps),
            "callbacks": {"run": {"options": list(written_with), "before": {"val/spearman": float()}}},
        } if all(isinstance(option, str) for option in written_with):
            pass
        case {"global_step": int(), "state_dict": dict()} as weights if "optimizer_states" not in weights:
            raise UserError(f"resume={checkpoint}: it holds weights without the optimizer's state: give a last.ckpt")
        case _:
            raise UserError(f"{checkpoint} is no checkpoint of a run of train.py")
    if resume == "auto" and written_with != given_options(options):
        raise UserError(
            f"{folder} holds another run ({' '.join(written_with) or 'no options'}): choose another folder, "
            f"or go on with it under these options by resume={checkpoint}"
        )
    if own:
        _cut_curves(folder, steps)
    log.info("going on from step %d, %s", steps, checkpoint)
    return checkpoint


def forget_checkpoint(folder: Path) -> None:
    """Let a run in a folder begin anew: a trial of a search that was interrupted has been given up."""
    if is_first_process():
        (folder / LAST_CHECKPOINT).unlink(missing_ok=True)


def _cut_curves(folder: Path, steps: int) -> None:
    """Remove from the curves what is measured again: all later than `steps`, and the test at the end."""
    path = folder / CURVES_FILE
    if not is_first_process() or not path.exists():
        return
    rows = read_rows(path)
    with atomic_write(folder) as new, (new / CURVES_FILE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0] if rows else [])
        writer.writeheader()
        writer.writerows(row for row in rows if int(row["step"]) <= steps and not _is_last_test(row))


def _is_last_test(row: Mapping[str, str]) -> bool:
    return int(row["step"]) > 0 and any(value for name, value in row.items() if name.startswith("test/"))
