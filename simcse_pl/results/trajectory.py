"""The curves of a training run, and its validations among them."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from simcse_pl.results.run_files import CURVES_FILE
from simcse_pl.utils.errors import UserError, first_line

LARGEST = 1e15  # of what is measured; far larger numbers cannot be drawn
_PATH_COLUMNS = {
    "step": "step",
    "val/alignment": "alignment",
    "val/uniformity": "uniformity",
    "val/spearman": "spearman",
}


@dataclass(frozen=True)
class TrainingTrajectory:
    """The validations of a training run.

    Args:
        label: what figures call it.
        points: a row a validation, in order: `step` (optimizer steps done), `alignment`, `uniformity` and
            `spearman` (not a number where the curves do not have it).
    """

    label: str
    points: pd.DataFrame


def read_run(folder: Path) -> TrainingTrajectory:
    """The rows of the curves that belong to a validation.

    Raises:
        UserError: the file is damaged, or has no validation.
    """
    file, curves = folder / CURVES_FILE, read_curves(folder)
    if missing := sorted(set(_PATH_COLUMNS) - {"val/spearman"} - set(curves.columns)):
        raise UserError(f"{file} has no column {missing[0]}: is it of a training run?")
    points = curves.reindex(columns=list(_PATH_COLUMNS)).rename(columns=_PATH_COLUMNS)
    drawn = points[["step", "alignment", "uniformity"]].abs().le(LARGEST).all(axis="columns")
    points = points[drawn].reset_index(drop=True)
    if points.empty:
        raise UserError(f"{file} has no validation with alignment and uniformity in it")
    points["step"] = points["step"].astype(int)
    return TrainingTrajectory(run_label(folder), points)


def read_curves(folder: Path) -> pd.DataFrame:
    """The rows of a training run's curves as they stand in its file, all of them numbers.

    Raises:
        UserError: the file is damaged.
    """
    file = folder / CURVES_FILE
    try:
        curves = pd.read_csv(file).astype(float)
        if "step" in curves and (curves["step"].abs() > LARGEST).any():
            raise ValueError(f"a step is beyond {LARGEST:g}")
        return curves
    except ValueError as error:  # pandas' own and UnicodeDecodeError are of this class
        raise UserError(f"{file} is damaged: {first_line(error)}") from error


def run_label(folder: Path) -> str:
    """What a training run is called whom nobody has given a name: its folder, and the one that it is in."""
    return "/".join(folder.absolute().parts[-2:])
