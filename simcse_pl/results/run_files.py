"""The names of files in the folders of runs and sweeps, and the curves of a training run."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simcse_pl.results.metrics import SPEARMAN
from simcse_pl.utils.errors import reraise_as
from simcse_pl.utils.files import read_json

if TYPE_CHECKING:
    import pandas as pd

RESULTS_FILE = "results.json"
CURVES_FILE = "metrics.csv"
WANDB_FILE = "wandb_run.json"  # the id of the folder's W&B run
RESOLVED_CONFIG = Path("config") / "resolved.yaml"  # config.yaml with all interpolations resolved
VALIDATION_PREFIXES = ("val/", "geometry/")  # of metrics that are measured at validations


def job_folders(folder: Path) -> list[Path]:
    """Return the folders of a sweep's jobs in the order of their numbers."""
    numbered = (path for path in folder.iterdir() if path.name.isdecimal() and path.is_dir())
    return sorted(numbered, key=lambda path: int(path.name))


def run_label(folder: Path) -> str:
    """Return the default label of a run: the last two parts of its path."""
    return "/".join(folder.absolute().parts[-2:])


@dataclass(frozen=True)
class TrainingTrajectory:
    """The validations of a training run.

    `points` has one row per validation: `step` (optimizer steps done), `alignment`, `uniformity` and `score` (NaN if
    not measured). It is empty if the run's evaluators do not measure alignment and uniformity.
    """

    label: str  # in figures
    points: "pd.DataFrame"
    metric: str = SPEARMAN  # the name of the score, which chooses the checkpoint


def read_run(folder: Path) -> TrainingTrajectory:
    """Read the validations of a training run; those with NaN or infinity are left out."""
    file = folder / RESULTS_FILE
    metric = (read_json(file) if file.is_file() else {}).get("monitor", SPEARMAN)
    columns = {"step": "step", "val/alignment": "alignment", "val/uniformity": "uniformity", f"val/{metric}": "score"}
    points = read_curves(folder).reindex(columns=[*columns]).rename(columns=columns)
    finite = points[["step", "alignment", "uniformity"]].abs().lt(math.inf).all(axis="columns")
    return TrainingTrajectory(run_label(folder), points[finite].reset_index(drop=True).astype({"step": int}), metric)


def read_curves(folder: Path) -> "pd.DataFrame":
    """Read the curves of a training run as numbers."""
    import pandas as pd  # slow, and commands import this file

    file = folder / CURVES_FILE
    with reraise_as(f"{file} is damaged"):
        return pd.read_csv(file).astype(float)
