"""What training runs have left in their folders: results, curves, and the options of the jobs of a sweep."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simcse_pl.config import CONF, options_of_sweep
from simcse_pl.evaluation.results import Result
from simcse_pl.results import SPEARMAN, TrainingRun, logged, read_shape
from simcse_pl.run_folder import CURVES_FILE, OF_LOGS, RESULTS_FILE, SWEEP_FILE, job_folders, run_label
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.private import jobs_of_sweep


@dataclass(frozen=True)
class Run:
    """A training run, which may be a job of a sweep."""

    label: str
    folder: Path
    results: TrainingRun | None  # None if it failed or has not finished
    plan: Sequence[str] = ()  # the options of a job that has not started

    @property
    def monitor(self) -> str:
        """The metric that chooses the checkpoint."""
        return self.results.monitor if self.results else SPEARMAN

    @cached_property
    def curves(self) -> pd.DataFrame:
        """The rows of metrics.csv as numbers."""
        file = self.folder / CURVES_FILE
        with reraise_as(f"{file} is damaged"):
            return pd.read_csv(file).astype(float)

    @property
    def points(self) -> pd.DataFrame:
        """The validations whose alignment and uniformity are finite numbers.

        Each has the columns `step` (optimizer steps done), `alignment`, `uniformity` and `score`, the monitored metric.
        """
        columns = {"step": "step", "alignment": logged("alignment"), "uniformity": logged("uniformity")}
        columns["score"] = logged(self.monitor)
        # a column that is missing is NaN
        points = pd.DataFrame({name: self.curves.get(column, math.nan) for name, column in columns.items()})
        finite = points[["step", "alignment", "uniformity"]].abs().lt(math.inf).all(axis="columns")
        return points[finite].reset_index(drop=True).astype({"step": int})

    @cached_property
    def options(self) -> Mapping[str, str]:
        """The options that were given, or that a search chose, and the seed."""
        file = self.folder / "config" / "overrides.yaml"
        given: Any = self.results.overrides if self.results else OmegaConf.load(file) if file.is_file() else self.plan
        parts = [option.lstrip("+").partition("=") for option in given]
        options = {name: _one_spelling(value) for name, _, value in parts}
        chosen = self.results.trial["values"] if self.results and self.results.trial else {}
        return options | {name: f"{v:.4g}" if isinstance(v, float) else str(v) for name, v in chosen.items()}

    def value(self, option: str) -> str:
        """Return the value of an option, or the choice of a config group."""
        choices = self.results.choices if self.results else {}
        return self.options.get(option) or choices.get(option) or "default"


def read(path: str | Path) -> Result | Run:
    """Read a results file of `simcse evaluate` or its folder, or the folder of a training run."""
    path = Path(path)
    if (path / CURVES_FILE).is_file():
        return read_run(path)
    file = path / RESULTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"no {RESULTS_FILE} or {CURVES_FILE} in {path}: give the folder of an evaluation or a training")
    return read_shape(Result, file)


def read_run(folder: Path, label: str | None = None) -> Run:
    """Read a training run, whose label is by default the last two parts of its path."""
    file = folder / RESULTS_FILE
    return Run(label or run_label(folder), folder, read_shape(TrainingRun, file) if file.is_file() else None)


def read_jobs(folder: Path, prefix: str = "") -> list[Run]:
    """Read the jobs of a sweep; those that have not started come last. `prefix` precedes the number in their labels."""
    jobs, planned = [read_run(job, prefix + job.name) for job in job_folders(folder)], list[list[str]]()
    with suppress(OSError, OmegaConfBaseException):  # no such file, or a variable of the shell that is set no longer
        config = OmegaConf.load(folder / SWEEP_FILE)
        if config.hydra.runtime.choices["hydra/sweeper"] == "basic":  # others choose jobs one by one
            planned = jobs_of_sweep(options_of_sweep(config), str(CONF))
    started = {job.folder.name for job in jobs}
    waiting = ((str(number), options) for number, options in enumerate(planned) if str(number) not in started)
    return jobs + [Run(prefix + number, folder / number, None, options) for number, options in waiting]


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


def option_values(jobs: Sequence[Run]) -> dict[str, set[str]]:
    """Return the values of the options of jobs but those of logs, in the order in which the options first appear."""
    names = (name for name in keys_of(job.options for job in jobs) if name.partition(".")[0] not in OF_LOGS)
    return {name: {job.value(name) for job in jobs} for name in names}


def differing(jobs: Sequence[Run]) -> list[str]:
    """Return the options that differ between jobs, in the order in which they first appear."""
    return [name for name, values in option_values(jobs).items() if len(values) > 1]


def keys_of(groups: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the keys of all groups in the order in which they first appear."""
    return list(dict.fromkeys(key for group in groups for key in group))
