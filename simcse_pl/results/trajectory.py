"""The curves of a training run, and its validations."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from simcse_pl.results.metrics import SPEARMAN
from simcse_pl.results.run_files import CURVES_FILE, RESULTS_FILE
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import read_json

_PLANE = ("val/alignment", "val/uniformity")


@dataclass(frozen=True)
class TrainingTrajectory:
    """The validations of a training run.

    Args:
        label: the name in figures.
        points: one row per validation: `step` (optimizer steps done), `alignment`, `uniformity` and
            `score` (NaN if not measured). Empty if the run's evaluators do not measure alignment and uniformity.
        metric: the name of the score, the metric that chooses the checkpoint.
    """

    label: str
    points: pd.DataFrame
    metric: str = SPEARMAN


def read_run(folder: Path) -> TrainingTrajectory:
    """Read the validations of a training run; those with NaN or infinity are left out.

    Raises:
        UserError: the file is damaged or has no validation.
    """
    file, curves, metric = folder / CURVES_FILE, read_curves(folder), monitored(folder)
    names = dict(zip(("step", *_PLANE, f"val/{metric}"), ("step", "alignment", "uniformity", "score"), strict=True))
    points = curves.reindex(columns=list(names)).rename(columns=names)
    missing = [name for name in ("step", *_PLANE) if name not in curves]
    if missing and not ("step" in curves and any(name.startswith("val/") for name in curves)):
        raise UserError(f"{file} has no column {sorted(missing)[0]}: is it of a training run?")
    finite = np.isfinite(points[["step", "alignment", "uniformity"]]).all(axis="columns")
    points = points[finite].reset_index(drop=True)
    if points.empty and not missing:
        raise UserError(f"{file} has no validation with alignment and uniformity")
    return TrainingTrajectory(run_label(folder), points.astype({"step": int}), metric)


def monitored(folder: Path) -> str:
    """Return the metric that chose the checkpoint of a run; Spearman's correlation if its results do not name one."""
    file = folder / RESULTS_FILE
    results = read_json(file) if file.is_file() else {}
    return str(results.get("monitor", SPEARMAN)) if isinstance(results, dict) else SPEARMAN


def read_curves(folder: Path) -> pd.DataFrame:
    """Read the curves of a training run as numbers.

    Raises:
        UserError: the file is damaged.
    """
    file = folder / CURVES_FILE
    with reraise_as(f"{file} is damaged"):
        return pd.read_csv(file).astype(float)


def run_label(folder: Path) -> str:
    """Return the default label of a run: the last two parts of its path."""
    return "/".join(folder.absolute().parts[-2:])
