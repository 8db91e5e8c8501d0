"""Results of training runs, alone or as jobs of a sweep, read from their folders."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from omegaconf import OmegaConf
from pydantic import BeforeValidator

from simcse_pl.lab.tables import keys_of
from simcse_pl.results import SPEARMAN, Number, Shape, factor, read_shape
from simcse_pl.runs import CURVES_FILE, RESULTS_FILE, job_folders


class Place(Shape):
    """The place of a job in a sweep; empty for a single run."""

    table: str | None = None  # of the paper, by its name in paper.yaml, or another name
    row: str | int | float | None = None
    column: str | None = None
    size: str | None = None  # mini or paper


class TrainingRun(Shape):
    """The results.json of `simcse train`: see `training.fit` and `sweeps.jobs.describe_job`.

    `best`, `test` and those before training are metrics by name, NaN if training diverged, and empty without a test
    set.
    """

    best: Mapping[str, Number]
    test: Mapping[str, Number]
    choices: Mapping[str, str | None]
    overrides: list[str]
    before: Mapping[str, Number] = {}
    test_before: Mapping[str, Number] = {}
    monitor: str = SPEARMAN  # the metric that chose the checkpoint
    mode: Literal["max", "min"] = "max"  # whether higher or lower values of it are better
    validation: str = "dev"
    test_set: str = ""
    steps: int | None = None
    best_step: int | None = None
    seed: int | None = None
    settings: Mapping[str, str] = {}
    sweep: Annotated[Place, BeforeValidator(lambda place: place or {})] = Place()
    trial: Mapping[str, Any] | None = None  # the `values` that a search proposed, and whether it `pruned` the job
    sts: Mapping[str, Number] = {}
    transfer_dev: Mapping[str, Number] = {}
    transfer_classifier: str = "scikit-learn"
    failed: Mapping[str, str] = {}

    def score(self, metrics: Mapping[str, float]) -> float:
        """Return the monitored metric as tables show it, mostly x 100; NaN if `metrics` do not have it."""
        return factor(self.monitor) * metrics.get(self.monitor, math.nan)

    @property
    def scores(self) -> dict[str, float]:
        """The monitored metric on dev and test, and alignment and uniformity on dev; NaN if not measured."""
        geometry = {name: self.best.get(name, math.nan) for name in ("alignment", "uniformity")}
        return {"dev": self.score(self.best), "test": self.score(self.test), **geometry}


@dataclass(frozen=True)
class Job:
    """One job of a sweep, or a single run."""

    name: str
    folder: Path
    options: Mapping[str, str]  # those that were given, or that a search chose, and the seed
    run: TrainingRun | None  # None if the job failed or has not finished

    @property
    def state(self) -> str:
        """Whether the job finished."""
        if not self.run:
            return "failed or unfinished"
        return "pruned by the search" if self.run.trial and self.run.trial["pruned"] else "finished"

    def value(self, option: str) -> str:
        """Return the value of an option, or the choice of a config group."""
        choices = self.run.choices if self.run else {}
        return self.options.get(option) or choices.get(option) or "default"


def differing(jobs: Sequence[Job]) -> list[str]:
    """Return the options that differ between jobs, in the order in which they first appear."""
    return [name for name in keys_of(job.options for job in jobs) if len({job.value(name) for job in jobs}) > 1]


def is_sweep(path: str | Path) -> bool:
    """Return whether a folder has numbered job folders and is not a run itself."""
    path = Path(path)
    is_run = any((path / name).is_file() for name in (RESULTS_FILE, CURVES_FILE))
    return path.is_dir() and not is_run and bool(job_folders(path))


def read_job(folder: Path, name: str) -> Job:
    """Read one job, or a single run; raise UserError if a file is damaged."""
    file = folder / RESULTS_FILE
    run = read_shape(TrainingRun, file) if file.is_file() else None
    saved = folder / "config" / "overrides.yaml"
    overrides: Any = run.overrides if run else OmegaConf.load(saved) if saved.is_file() else []
    given = (override.lstrip("+").partition("=") for override in overrides)
    options = {name: value.strip("'\"") for name, _, value in given}
    if run and run.trial:
        options |= {name: f"{v:.4g}" if isinstance(v, float) else str(v) for name, v in run.trial["values"].items()}
    return Job(name, folder, options, run)
