"""The curves of a training run, and its validations."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from simcse_pl.results.run_files import CURVES_FILE
from simcse_pl.utils.errors import UserError, first_line

_COLUMNS = {
    "step": "step",
    "val/alignment": "alignment",
    "val/uniformity": "uniformity",
    "val/spearman": "spearman",
}


@dataclass(frozen=True)
class TrainingTrajectory:
    """The validations of a training run.

    Args:
        label: the name in figures.
        points: one row per validation: `step` (optimizer steps done), `alignment`, `uniformity` and
            `spearman` (NaN if not measured).
    """

    label: str
    points: pd.DataFrame


def read_run(folder: Path) -> TrainingTrajectory:
    """Read the validations of a training run; those with NaN or infinity are left out.

    Raises:
        UserError: the file is damaged or has no validation.
    """
    file, curves = folder / CURVES_FILE, read_curves(folder)
    if missing := sorted(set(_COLUMNS) - {"val/spearman"} - set(curves.columns)):
        raise UserError(f"{file} has no column {missing[0]}: is it of a training run?")
    points = curves.reindex(columns=list(_COLUMNS)).rename(columns=_COLUMNS)
    finite = np.isfinite(points[["step", "alignment", "uniformity"]]).all(axis="columns")
    points = points[finite].reset_index(drop=True)
    if points.empty:
        raise UserError(f"{file} has no validation with alignment and uniformity")
    return TrainingTrajectory(run_label(folder), points.astype({"step": int}))


def read_curves(folder: Path) -> pd.DataFrame:
    """Read the curves of a training run as numbers.

    Raises:
        UserError: the file is damaged.
    """
    file = folder / CURVES_FILE
    try:
        return pd.read_csv(file).astype(float)
    except ValueError as error:  # pandas' errors and UnicodeDecodeError are subclasses
        raise UserError(f"{file} is damaged: {first_line(error)}") from error


def run_label(folder: Path) -> str:
    """Return the default label of a run: the last two parts of its path."""
    return "/".join(folder.absolute().parts[-2:])
