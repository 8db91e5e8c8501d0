"""Log the curves of a run to metrics.csv and to TensorBoard, and end W&B runs."""

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning_fabric.loggers.logger import rank_zero_experiment
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from simcse_pl.results import TEST, TrainingRun, split_and_metric
from simcse_pl.utils.errors import Stopped, reraise_as
from simcse_pl.utils.files import atomic_open


class StepsDone:
    """A base of loggers that count finished optimizer steps. Lightning logs a training step before it counts it."""

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        """Log metrics at the number of steps done. Drop the epoch of a test, because resuming changes it."""
        if any(name.startswith(f"{TEST}/") for name in metrics):
            metrics = {name: value for name, value in metrics.items() if name != "epoch"}
        is_training = not any(split_and_metric(name)[0] for name in metrics)
        super().log_metrics(metrics, step + is_training if step is not None else None)  # type: ignore[misc]


def read_curve_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of metrics.csv as strings; raise UserError if it is damaged, or a row has no integer `step`."""
    with reraise_as(f"{path} is damaged, move it away to continue"):
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
        if rows and None in rows[-1].values():  # a full disk has cut it
            rows.pop()
        for row in rows:
            int(row["step"])
    return rows


def write_curve_rows(path: Path, names: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace metrics.csv by rows with these columns."""
    with atomic_open(path, newline="") as file:
        writer = csv.DictWriter(file, [*names])
        writer.writeheader()
        writer.writerows(rows)


class CurvesLogger(StepsDone, CSVLogger):
    """Lightning's CSV logger, which continues an existing file, and replaces it atomically if there is a new column.

    Lightning saves each row at once, so the file has all points up to a checkpoint.
    """

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        if self._experiment is None:
            self._experiment = _Curves(self.log_dir)
        return self._experiment


class TensorBoardCurves(StepsDone, TensorBoardLogger):
    """Lightning's TensorBoard logger with the step numbers of metrics.csv, in one file of events."""

    def finalize(self, status: str) -> None:
        """Write the file, and close it after an error; otherwise the next stage of the run would start another."""
        if self._experiment is not None:
            self.save()
        if status != "success":  # no results follow
            super().finalize(status)

    def log_results(self, run: TrainingRun, measured: Any = None) -> None:
        """Log the options with the monitored metric of the best checkpoint, for the tab HPARAMS, and close the file."""
        stages = {"best/dev": run.best, "best/test": run.test}
        scores = {name: metrics[run.monitor] for name, metrics in stages.items() if run.monitor in metrics}
        self.log_hyperparams(self.hparams, scores, (run.best_step or 1) - 1)  # `log_metrics` adds 1 to it
        super().finalize("success")


class _Curves(ExperimentWriter):
    """Appends rows to the file, which it replaces if there is a new column."""

    def _check_log_dir_exists(self) -> None:
        """Keep existing rows; Lightning would remove the file."""
        path = Path(self.metrics_file_path)
        rows = read_curve_rows(path) if path.exists() else []
        self.metrics_keys = [*rows[0]] if rows else []

    def _rewrite_with_new_header(self, fieldnames: Iterable[str]) -> None:
        path = Path(self.metrics_file_path)
        write_curve_rows(path, fieldnames, read_curve_rows(path))


@contextmanager
def closing_run() -> Iterator[None]:
    """Finish a W&B run of the block at its end; it is failed after an exception, and preempted after `Stopped`."""
    before, status = _current_run(), 1  # the user may have started a run
    try:
        yield
        status = 0
    except Stopped:
        mark_preempted()
        raise
    finally:
        if (run := _current_run()) and run is not before:
            run.finish(exit_code=status)


def mark_preempted() -> None:
    """Mark the W&B run as preempted: it will be resumed."""
    if run := _current_run():
        run.mark_preempting()


def _current_run() -> Any:
    """Return the W&B run of this process, if there is one."""
    return getattr(sys.modules.get("wandb"), "run", None)
