"""The curves of a training run, and its validations."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from simcse_pl.results.metrics import SPEARMAN
from simcse_pl.results.run_files import CURVES_FILE, RESULTS_FILE, run_label
from simcse_pl.utils.errors import reraise_as
from simcse_pl.utils.files import read_json


@dataclass(frozen=True)
class TrainingTrajectory:
    """The validations of a training run.

    `points` has one row per validation: `step` (optimizer steps done), `alignment`, `uniformity` and `score` (NaN if
    not measured). It is empty if the run's evaluators do not measure alignment and uniformity.
    """

    label: str  # in figures
    points: pd.DataFrame
    metric: str = SPEARMAN  # the name of the score, which chooses the checkpoint


def read_run(folder: Path) -> TrainingTrajectory:
    """Read the validations of a training run; those with NaN or infinity are left out.

    Raises:
        UserError: a file is damaged.
    """
    file = folder / RESULTS_FILE
    metric = (read_json(file) if file.is_file() else {}).get("monitor", SPEARMAN)
    columns = {"step": "step", "val/alignment": "alignment", "val/uniformity": "uniformity", f"val/{metric}": "score"}
    points = read_curves(folder).reindex(columns=[*columns]).rename(columns=columns)
    finite = np.isfinite(points[["step", "alignment", "uniformity"]]).all(axis="columns")
    return TrainingTrajectory(run_label(folder), points[finite].reset_index(drop=True).astype({"step": int}), metric)


def read_curves(folder: Path) -> pd.DataFrame:
    """Read the curves of a training run as numbers.

    Raises:
        UserError: the file is damaged.
    """
    file = folder / CURVES_FILE
    with reraise_as(f"{file} is damaged"):
        return pd.read_csv(file).astype(float)
