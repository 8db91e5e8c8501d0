"""Checkpoints: the best, atomic writes, and from which one an interrupted run resumes."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from simcse_pl.config import in_sweep
from simcse_pl.loggers import read_curve_rows, write_curve_rows
from simcse_pl.results import TEST, VALIDATION, split_and_metric
from simcse_pl.run_folder import CURVES_FILE, RESULTS_FILE, WANDB_FILE
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_open
from simcse_pl.utils.processes import is_first_process
from simcse_pl.utils.tensors import read_torch_file

log = logging.getLogger(__name__)

BEST_CHECKPOINT, LAST_CHECKPOINT = Path("checkpoints") / "best.ckpt", Path("checkpoints") / "last.ckpt"

_OTHER_TIMES = {"every_n_train_steps", "train_time_interval", "every_n_epochs", "save_on_train_epoch_end"}


class BestCheckpoint(ModelCheckpoint):
    """Lightning's ModelCheckpoint, which also stores the step and the metrics of the best checkpoint.

    It is saved after validations only, because the metrics of other times are those of earlier weights. UserError is
    raised for options that set another time, or save none.
    """

    best_step: int = 0
    best_metrics: dict[str, float] = {}  # noqa: RUF012 - replaced as a whole, never changed

    def __init__(self, **options: Annotated[Any, ModelCheckpoint]) -> None:
        for name in sorted(options.keys() & _OTHER_TIMES):
            raise UserError(f"{name}: the best checkpoint is saved after validations: set val_every instead")
        if options.get("save_top_k") == 0:
            raise UserError("save_top_k=0: the run ends with its best checkpoint, which must be saved")
        super().__init__(**options, save_on_train_epoch_end=False)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        score = self.best_model_score
        super().on_validation_end(trainer, pl_module)
        if self.best_model_score != score:
            curves = trainer.callback_metrics.items()
            metrics = {name: float(value) for name, value in curves if split_and_metric(name)[0] == VALIDATION}
            self.best_step, self.best_metrics = trainer.global_step, metrics

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"best_step": self.best_step, "best_metrics": self.best_metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state, also if the run's folder was moved; without the file, there is no best checkpoint yet."""

        def here(path: str) -> str:
            return str(Path(self.dirpath or "") / Path(path).name)

        if not Path(here(state_dict["best_model_path"])).is_file():
            return  # the run continues in another folder
        paths = {name: here(state_dict[name]) for name in ("best_model_path", "kth_best_model_path")}
        models = {here(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict(state_dict | paths | {"dirpath": self.dirpath, "best_k_models": models})
        self.best_step, self.best_metrics = state_dict["best_step"], state_dict["best_metrics"]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write checkpoints atomically: the previous one survives a kill or a full disk.

    If the temporary folder is on another file system, Lightning copies over the old checkpoint.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint; raise WriteError if the system cannot write the file."""
        with atomic_open(Path(path), "wb") as file:
            torch.save(checkpoint, file)  # given a path, torch does not say why it cannot write


def resume_option(given: str | None) -> str | None:
    """Return the option `resume`, which is `auto` by default in a sweep, so that the same command continues it."""
    return given or ("auto" if in_sweep() else None)


@dataclass(frozen=True)
class Start:
    """Where a run starts.

    Args:
        checkpoint: to resume from; None to start from the beginning.
        step: that of the checkpoint; -1 without one.
        continues: whether the run continues its folder's curves after the step, and its W&B run.
    """

    checkpoint: Path | None = None
    step: int = -1
    continues: bool = False


def find_start(given: str | None, folder: Path, search: bool = False) -> Start:
    """Return where a run starts, without a change of its folder.

    A run continues if it resumes from the last checkpoint of its folder, whose run has not finished. A finished run has
    no best checkpoint to compare with.

    Args:
        given: the option `resume`: a checkpoint; `auto` for the folder's last checkpoint, if it exists;
            None to start from the beginning, but `auto` in a sweep.
        folder: the run's folder.
        search: whether this is a trial of a search, which ignores the folder's last checkpoint.

    Raises:
        UserError: if the checkpoint is missing or damaged, or the folder holds another run.
    """
    resume, last = resume_option(given), folder / LAST_CHECKPOINT
    interrupted = last.is_file() and not search and not (folder / RESULTS_FILE).exists()
    if resume == "auto":
        checkpoint = last if last.is_file() and not search else None
    else:
        checkpoint = Path(resume) if resume else None
    continues = checkpoint is not None and interrupted and checkpoint.resolve() == last.resolve()
    if is_first_process() and not continues and resume != "auto" and _holds_run(folder):
        raise UserError(f"{folder} already holds a run: choose another hydra.run.dir, or continue with resume=auto")
    if checkpoint is None:
        return Start()
    start = Start(checkpoint, _step_of(checkpoint), continues)
    why = f"resume={given}" if given else "this is a job of a sweep, where resume=auto is the default"
    log.info("resuming from step %d, because %s: %s", start.step, why, checkpoint)
    return start


def prepare_folder(folder: Path, start: Start, search: bool = False) -> None:
    """Remove from a run's folder what the run does not continue. The arguments are those of `find_start`."""
    if search:
        (folder / LAST_CHECKPOINT).unlink(missing_ok=True)
    if not start.continues:
        (folder / WANDB_FILE).unlink(missing_ok=True)
    _cut_curves(folder / CURVES_FILE, start.step if start.continues else -1)


def remove_checkpoints(folder: Path) -> None:
    """Remove what a finished run does not need: best.ckpt, whose weights `encoder` has, and in a sweep last.ckpt."""
    (folder / BEST_CHECKPOINT).unlink(missing_ok=True)
    if in_sweep():
        (folder / LAST_CHECKPOINT).unlink(missing_ok=True)
        with suppress(OSError):  # it has checkpoints of the user's callbacks
            (folder / LAST_CHECKPOINT.parent).rmdir()


def _holds_run(folder: Path) -> bool:
    """Return whether a folder has results, checkpoints or curves after step 0. A run that failed earlier has none."""
    curves = folder / CURVES_FILE
    trained = curves.exists() and any(int(row["step"]) > 0 for row in read_curve_rows(curves))
    return trained or (folder / RESULTS_FILE).exists() or any((folder / LAST_CHECKPOINT.parent).glob("*"))


def _step_of(checkpoint: Path) -> int:
    """Return the step of a checkpoint; raise UserError if no run can resume from it."""
    match read_torch_file(checkpoint, mmap=True):
        case {"global_step": int(step), "callbacks": {"run": {"before": dict(), "trained_with": dict()}}}:
            return step
        case _:
            raise UserError(f"{checkpoint} is not a checkpoint to resume from: choose a last.ckpt of 0.5.0 or later")


def _cut_curves(path: Path, steps: int) -> None:
    """Remove the points after `steps`, and the results of the test after training, from a file of curves."""
    if not path.exists():
        return

    def stays(row: Mapping[str, str]) -> bool:
        step = int(row["step"])
        tested_after_training = step > 0 and any(row[name] for name in row if split_and_metric(name)[0] == TEST)
        return step <= steps and not tested_after_training

    rows = read_curve_rows(path)
    write_curve_rows(path, rows[0] if rows else [], filter(stays, rows))
