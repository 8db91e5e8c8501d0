"""The curves of a run: metrics.csv, which survives a crash, and Weights & Biases, offline unless asked, no prompts."""

import csv
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import wandb
from lightning_fabric.loggers.logger import rank_zero_experiment
from pytorch_lightning.loggers import CSVLogger, WandbLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from simcse_pl.distributed import is_first_process
from simcse_pl.errors import UserError
from simcse_pl.files import written_whole

MODES = ("auto", "online", "offline")


class CurvesLogger(CSVLogger):
    """Lightning's, whose file is whole at any moment, goes on where it ends, and has what was validated at once.

    So a checkpoint, which is written after a validation, never knows of points that the file lacks.
    """

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The writer of the file, on rank 0."""
        if self._experiment is None:
            self._experiment = _Curves(self.log_dir)
        return self._experiment

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Keep a row, and write it out where it is of a validation."""
        super().log_metrics(metrics, step)
        if is_first_process() and any(name.startswith("val/") for name in metrics):
            self.save()


class _Curves(ExperimentWriter):
    def _check_log_dir_exists(self) -> None:
        """Lightning's removes the curves that are there."""
        path = Path(self.metrics_file_path)
        self._written: list[dict[str, Any]] = []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                self._written = list(csv.DictReader(file))
                self.metrics_keys = list(self._written[0]) if self._written else []

    def save(self) -> None:
        """Write the file anew."""
        if not self.metrics:
            return
        self._record_new_keys()
        self._written += self.metrics
        self.metrics = []
        path = Path(self.metrics_file_path)
        with written_whole(path.parent) as new, (new / path.name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.metrics_keys)
            writer.writeheader()
            writer.writerows(self._written)


def wandb_logger(
    save_dir: str | Path,
    mode: str = "auto",
    project: str = "simcse_pl",
    name: str | None = None,
    group: str | None = None,
    tags: Sequence[str] = (),
) -> WandbLogger:
    """A W&B logger that never asks anything.

    Args:
        save_dir: the folder that gets the folder `wandb`.
        mode: `online`, `offline`, or `auto`: what WANDB_MODE says, else online for a user who is logged in
            (a key in the environment or in netrc), else offline.
        project, name, group, tags: as W&B has them.

    Raises:
        UserError: an unknown mode, or `online` for nobody who is logged in.
    """
    if mode not in MODES:
        raise UserError(f"logger.wandb.mode={mode}: choose one of {', '.join(MODES)}")
    logged_in = wandb.login(prompt=False, verify=False)
    if mode == "online" and not logged_in:
        raise UserError("logger.wandb.mode=online: nobody is logged in; run `wandb login` or set WANDB_API_KEY")
    if mode == "auto":
        mode = os.environ.get("WANDB_MODE") or ("online" if logged_in else "offline")
    if not is_first_process():
        return WandbLogger(save_dir=save_dir, name=name)
    run = wandb.init(
        dir=save_dir,
        mode=mode,  # type: ignore[arg-type]
        project=project,
        name=name,
        group=group,
        tags=list(tags),
        settings=wandb.Settings(silent=True),
    )
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    run.define_metric("val/spearman", summary="max", step_metric="trainer/global_step", step_sync=True)
    return WandbLogger(experiment=run)


@contextmanager
def closing_run() -> Iterator[None]:
    """End the W&B run at the end of the block, as failed after an exception; the next job starts one of its own."""
    try:
        yield
    except BaseException:
        wandb.finish(exit_code=1)
        raise
    wandb.finish()
