"""What finished runs have left in their folders: results, curves, and the jobs of a sweep."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from simcse_pl.evaluation.results import Result
from simcse_pl.results import SPEARMAN, TrainingRun, logged, read_shape
from simcse_pl.runs import CURVES_FILE, RESULTS_FILE, job_folders, run_label
from simcse_pl.utils.errors import UserError, reraise_as


@dataclass(frozen=True)
class TrainingTrajectory:
    """The validations of a training run.

    `points` has one row per validation: `step` (optimizer steps done), `alignment`, `uniformity` and `score` (NaN if
    not measured). It is empty if the run's evaluators do not measure alignment and uniformity.
    """

    label: str  # in figures
    points: pd.DataFrame
    metric: str = SPEARMAN  # the name of the score, which chooses the checkpoint


def read(path: str | Path) -> Result | TrainingTrajectory:
    """Read a results file of `simcse evaluate` or its folder, or the folder of a training run."""
    path = Path(path)
    if (path / CURVES_FILE).is_file():
        return read_run(path)
    file = path / RESULTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"no {RESULTS_FILE} or {CURVES_FILE} in {path}: give the folder of an evaluation or a training")
    return read_shape(Result, file)


def read_run(folder: Path, results: TrainingRun | None = None) -> TrainingTrajectory:
    """Read the validations of a run, unless they are NaN or infinite; `results` if they are not written yet."""
    results = results or read_results(folder)
    metric = results.monitor if results else SPEARMAN
    columns = {"step": "step", **{logged(name): name for name in ("alignment", "uniformity")}, logged(metric): "score"}
    points = read_curves(folder).reindex(columns=[*columns]).rename(columns=columns)
    finite = points[["step", "alignment", "uniformity"]].abs().lt(math.inf).all(axis="columns")
    return TrainingTrajectory(run_label(folder), points[finite].reset_index(drop=True).astype({"step": int}), metric)


def read_curves(folder: Path) -> pd.DataFrame:
    """Read the curves of a training run as numbers."""
    file = folder / CURVES_FILE
    with reraise_as(f"{file} is damaged"):
        return pd.read_csv(file).astype(float)


def read_results(folder: Path) -> TrainingRun | None:
    """Read the results of a training run; None if it failed or has not finished."""
    file = folder / RESULTS_FILE
    return read_shape(TrainingRun, file) if file.is_file() else None


@dataclass(frozen=True)
class Job:
    """One job of a sweep, or a single run."""

    name: str
    folder: Path
    options: Mapping[str, str]  # those that were given, or that a search chose, and the seed
    run: TrainingRun | None  # None if the job failed or has not finished
    trained: bool = True  # False for an evaluation that is compared with runs

    @property
    def state(self) -> str:
        """Whether the job finished."""
        if not self.run:
            return "failed or unfinished"
        return "pruned by the search" if self.run.trial and self.run.trial["pruned"] else "finished"

    def value(self, option: str) -> str:
        """Return the value of an option, or the choice of a config group."""
        if not self.trained:
            return ""
        choices = self.run.choices if self.run else {}
        return self.options.get(option) or choices.get(option) or "default"


def read_job(folder: Path, name: str) -> Job:
    """Read one job; raise UserError if a file is damaged."""
    run = read_results(folder)
    saved = folder / "config" / "overrides.yaml"
    overrides: Any = run.overrides if run else OmegaConf.load(saved) if saved.is_file() else []
    options = {name: _one_spelling(value) for name, _, value in (o.lstrip("+").partition("=") for o in overrides)}
    if run and run.trial:
        options |= {name: f"{v:.4g}" if isinstance(v, float) else str(v) for name, v in run.trial["values"].items()}
    return Job(name, folder, options, run)


def _one_spelling(value: str) -> str:
    """Return the value of an option in one spelling: jobs of a sweep have True and {a:1}, runs what was typed."""
    value = value.strip("'\"")
    if value in ("True", "False"):
        return value.lower()
    return re.sub(r"(?<=[,:]) +", "", value) if value.startswith(("{", "[")) else value


def is_sweep(path: str | Path) -> bool:
    """Return whether a folder has numbered job folders and is not a run itself."""
    path = Path(path)
    is_run = any((path / name).is_file() for name in (RESULTS_FILE, CURVES_FILE))
    return path.is_dir() and not is_run and bool(job_folders(path))


def option_values(jobs: Sequence[Job]) -> dict[str, set[str]]:
    """Return the values of the options of trained jobs, in the order in which the options first appear."""
    trained = [job for job in jobs if job.trained]
    return {name: {job.value(name) for job in trained} for name in keys_of(job.options for job in trained)}


def differing(jobs: Sequence[Job]) -> list[str]:
    """Return the options that differ between jobs, in the order in which they first appear."""
    return [name for name, values in option_values(jobs).items() if len(values) > 1]


def keys_of(groups: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the keys of all groups in the order in which they first appear."""
    return list(dict.fromkeys(key for group in groups for key in group))
