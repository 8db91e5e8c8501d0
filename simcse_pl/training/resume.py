"""Resuming an interrupted run: finding its checkpoint, and cutting its curves."""

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
    """Add the run's options and its scores before training to checkpoints, and correct logged steps.

    Args:
        options: the options given to the run.

    Attributes:
        before: metrics measured before training, by name.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self.options = given_options(options)
        self.before: dict[str, float] = {}

    @property
    def state_key(self) -> str:
        """The key of the state in checkpoints."""
        return "run"

    def state_dict(self) -> dict[str, Any]:
        """Return the options and the metrics."""
        return {"options": self.options, "before": self.before}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the metrics; the options are those of this run."""
        self.before = state_dict["before"]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Correct the logged step: after resuming between two epochs it is one too high."""
        trainer.fit_loop.epoch_loop._batches_that_stepped = trainer.global_step

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Correct the logged step: during validation it is one too low."""
        trainer.fit_loop.epoch_loop._batches_that_stepped = trainer.global_step

    on_test_start = on_validation_start


def find_checkpoint(resume: str | None, folder: Path, options: Sequence[str]) -> Path | None:
    """Return the checkpoint to resume from, and prepare the run's folder.

    If it is the folder's own checkpoint, the folder's curves are cut at its step. Otherwise the run
    starts new curves and a new W&B run.

    Args:
        resume: a checkpoint; `auto` for the folder's last one, if it exists; None to start anew.
        folder: the run's folder.
        options: the options given to the run.

    Raises:
        UserError: if the checkpoint is missing or damaged, or the folder holds another run.
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
        raise UserError(f"{folder} already holds a run: choose another hydra.run.dir, or continue with resume=auto")
    if not own and is_first_process():
        (folder / WANDB_FILE).unlink(missing_ok=True)
    if checkpoint is None:
        _cut_curves(folder, steps=-1)
        return None
    match read_torch_file(checkpoint, mmap=True):
        case {
            "global_step": int(steps),
            "callbacks": {"run": {"options": list(written_with), "before": dict()}},
        } if all(isinstance(option, str) for option in written_with):
            pass
        case {"global_step": int(), "state_dict": dict()} as weights if "optimizer_states" not in weights:
            raise UserError(f"resume={checkpoint}: it has no optimizer state; choose a last.ckpt")
        case _:
            raise UserError(f"{checkpoint} is no checkpoint of a run of train.py")
    if resume == "auto" and written_with != given_options(options):
        raise UserError(
            f"{folder} holds another run ({' '.join(written_with) or 'no options'}): choose another folder, "
            f"or continue that run with these options by resume={checkpoint}"
        )
    if own:
        _cut_curves(folder, steps)
    log.info("resuming from step %d, %s", steps, checkpoint)
    return checkpoint


def forget_checkpoint(folder: Path) -> None:
    """Remove the last checkpoint: an interrupted trial of a search starts anew."""
    if is_first_process():
        (folder / LAST_CHECKPOINT).unlink(missing_ok=True)


def _cut_curves(folder: Path, steps: int) -> None:
    """Remove all curve points after `steps`, and the test at the end of the run."""
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
