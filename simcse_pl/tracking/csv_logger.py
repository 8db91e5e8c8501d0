"""The curves of a run as metrics.csv, which survives a crash. Those in Weights & Biases are in dashboard.py."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_fabric.loggers.logger import rank_zero_experiment
from pytorch_lightning.core.saving import save_hparams_to_yaml
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from simcse_pl.utils.distributed import is_first_process
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.files import atomic_write


def steps_done(metrics: Mapping[str, Any], step: int | None) -> int | None:
    """Return after how many optimizer steps metrics were measured.

    Args:
        metrics: that Lightning logs together.
        step: what Lightning gives to a logger; for those of a training step it does not count that step yet.
    """
    of_training = any(name.startswith(("train/", "speed/")) for name in metrics)
    return step + 1 if of_training and step is not None else step


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of such a file as they stand there, each with a number as its `step`.

    Raises:
        UserError: it is damaged.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows: list[dict[Any, Any]] = list(csv.DictReader(file, strict=True))
        for number, row in enumerate(rows, 1):
            if None in row or None in row.values():
                raise ValueError(f"row {number} has more or fewer columns than the first line")
            int(row["step"])
    except (ValueError, KeyError, csv.Error) as error:
        raise UserError(f"{path} is damaged, move it away to go on: {first_line(error)}") from error
    return rows


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
        super().log_metrics(metrics, steps_done(metrics, step))
        if is_first_process() and any(name.startswith("val/") for name in metrics):
            self.save()


class TensorBoardCurves(TensorBoardLogger):
    """Lightning's logger, with the steps of metrics.csv."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a point to curves."""
        super().log_metrics(metrics, steps_done(metrics, step))


class _Curves(ExperimentWriter):
    def _check_log_dir_exists(self) -> None:
        """Lightning's removes the curves that are there."""
        path = Path(self.metrics_file_path)
        self._written: list[dict[str, Any]] = []
        if path.exists():
            self._written = read_rows(path)
            self.metrics_keys = list(self._written[0]) if self._written else []

    def log_hparams(self, params: dict[str, Any]) -> None:
        """Write the options to hparams.yaml."""
        self.hparams.update(params)
        with atomic_write(self.log_dir) as new:
            save_hparams_to_yaml(new / self.NAME_HPARAMS_FILE, self.hparams)

    def save(self) -> None:
        """Write the file anew."""
        if not self.metrics:
            return
        self._record_new_keys()
        self._written += self.metrics
        self.metrics = []
        path = Path(self.metrics_file_path)
        with atomic_write(path.parent) as new, (new / path.name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.metrics_keys)
            writer.writeheader()
            writer.writerows(self._written)
