"""The folder of a training run: the names of its files, its curves and its results."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simcse_pl.results import SPEARMAN, Result, read_shape
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import read_json

if TYPE_CHECKING:
    import pandas as pd
    from omegaconf import DictConfig
import json
from collections.abc import Mapping, Sequence
from typing import Any

from simcse_pl.utils.errors import SweepError

RESULTS_FILE = "results.json"
CURVES_FILE = "metrics.csv"
WANDB_FILE = "wandb_run.json"  # the id of the folder's W&B run
RESOLVED_CONFIG = Path("config") / "resolved.yaml"  # config.yaml with all interpolations resolved
VALIDATION_PREFIXES = ("val/", "geometry/")  # of metrics that are measured at validations
OF_TWO_GROUPS = ("setting/model", "method/model", "size/sweep")  # what the choices of two groups have together


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


def finished_job(folder: Path, overrides: Sequence[str]) -> dict[str, Any] | None:
    """Return the results of the job with these options if it has finished, or None.

    Raises:
        SweepError: the folder holds the results of a job with other options.
        UserError: the results are damaged.
    """
    path = folder / RESULTS_FILE
    if not path.is_file():
        return None
    with reraise_as(f"{path} is damaged, remove it to run the job again"):
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        options = given_options(results["overrides"])
        best_score(results)
    if options != (given := given_options(overrides)):
        there, here = (" ".join(sorted({*a} - {*b})) or "none" for a, b in ((options, given), (given, options)))
        raise SweepError(f"{folder} holds a finished job (only there: {there}; only here: {here}): choose another one")
    return results


def given_options(options: Sequence[str]) -> list[str]:
    """Return the options of a run, sorted, without those that do not change it."""
    return sorted(option for option in options if not option.lstrip("+").startswith(("resume=", "debug=", "jobs=")))


def best_score(results: Mapping[str, Any]) -> float:
    """Return the metric that chose the checkpoint, at the best step; NaN (null in JSON) if training diverged."""
    score = results["best"][results.get("monitor", "spearman")]
    return math.nan if score is None else float(score)


def describe_job(config: "DictConfig", hydra: Any) -> dict[str, Any]:
    """Return the part of results.json that describes a run: choices of groups, options, seed, and row of the sweep."""
    sweep = config.get("sweep") or {}
    place = {name: sweep.get(name) for name in ("table", "column", "row")}
    choices = {group: choice for group, choice in hydra.runtime.choices.items() if "hydra" not in group}
    return {
        "choices": {group: choice for group, choice in choices.items() if choice and group not in OF_TWO_GROUPS},
        "overrides": list(hydra.overrides.task),
        "seed": config.seed,
        "sweep": place | {"size": config.get("size")} if sweep else None,
    }


def read(path: str | Path) -> Result | TrainingTrajectory:
    """Read a results file of `simcse evaluate` or its folder, or the folder of a training run."""
    path = Path(path)
    if (path / CURVES_FILE).is_file():
        return read_run(path)
    file = path / RESULTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"no {RESULTS_FILE} or {CURVES_FILE} in {path}: give the folder of an evaluation or a training")
    return read_shape(Result, file)
