"""Results of sweeps of train.py, read from the folders of their jobs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import simcse_pl.sweeps.resolvers  # noqa: F401  the configs of sweeps refer to them
from simcse_pl.reports.tables.score_tables import keys_of
from simcse_pl.results.evaluation_results import Number, Shape, validated
from simcse_pl.results.metrics import SPEARMAN, factor, score_name
from simcse_pl.results.run_files import CURVES_FILE, RESULTS_FILE, job_folders
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import read_json
from simcse_pl.utils.yaml_files import read_yaml


class Place(Shape):
    """The place of a job in a sweep: a table of the paper, or another name, with a row and a column of it."""

    table: str | None = None
    row: str | int | float | None = None
    column: str | None = None
    size: str | None = None


class Trial(Shape):
    """The values that a search proposed for a job, and whether it pruned the job."""

    values: Mapping[str, str | int | float | bool | None]
    pruned: bool = False


class TrainingRun(Shape):
    """The results.json of train.py.

    Args:
        best, test, before, test_before: metrics by name, NaN if training diverged; empty without a test set.
        monitor: the metric that chose the checkpoint.
        mode: `max` if higher values of it are better, or `min`.
        further: see training.fit.train_and_test, training.fit.task_scores and sweeps.jobs.describe_job.
    """

    best: Mapping[str, Number]
    test: Mapping[str, Number]
    choices: Mapping[str, str | None]
    overrides: list[str]
    before: Mapping[str, Number] = {}
    test_before: Mapping[str, Number] = {}
    monitor: str = SPEARMAN
    mode: Literal["max", "min"] = "max"
    validation: str = "dev"
    test_set: str = ""
    steps: int | None = None
    best_step: int | None = None
    seed: int | None = None
    sweep: Place | None = None
    trial: Trial | None = None
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
    """One job of a sweep, or a single run.

    Args:
        name: the name in tables.
        folder: the output folder.
        options: options by name that were given, or that a search chose; they include the seed.
        choices: the choice in each of Hydra's config groups.
        seed: None if unknown.
        run: the results; None if the job failed or has not finished.
    """

    name: str
    folder: Path
    options: Mapping[str, str]
    choices: Mapping[str, str | None]
    seed: int | None
    run: TrainingRun | None

    @property
    def place(self) -> Place:
        """The place in the sweep; empty without results."""
        return (self.run and self.run.sweep) or Place()

    @property
    def pruned(self) -> bool:
        """Whether a search pruned the job."""
        return bool(self.run and self.run.trial and self.run.trial.pruned)

    def value(self, option: str) -> str:
        """Return the value of an option."""
        return self.options.get(option) or self.choices.get(option) or "default"


@dataclass(frozen=True)
class Sweep:
    """Jobs that are compared with each other.

    Args:
        label: the folder, or the label that the user gave.
        table: the table of the paper that the sweep repeats, by its name in paper.yaml, or another name.
        size: `mini`, `paper` or None.
        jobs: in the order of their numbers; at least one has results.
        missing: jobs that Hydra planned and that do not have a folder.
    """

    label: str
    table: str | None
    size: str | None
    jobs: list[Job]
    missing: list[str]

    @property
    def runs(self) -> list[TrainingRun]:
        """The results of the jobs that have some."""
        return [job.run for job in self.jobs if job.run]


def score_names(runs: Sequence[TrainingRun]) -> str:
    """Return the name and scale of the monitored metrics of runs: `Spearman x 100`."""
    return " or ".join(dict.fromkeys(score_name(run.monitor, run.mode) for run in runs))


def differing(jobs: Sequence[Job]) -> list[str]:
    """Return the options that differ between jobs, in the order in which they first appear."""
    return [name for name in keys_of(job.options for job in jobs) if len({job.value(name) for job in jobs}) > 1]


def is_sweep(path: str | Path) -> bool:
    """Return whether a folder has numbered job folders and is not a run itself."""
    path = Path(path)
    own = (path / name for name in (RESULTS_FILE, CURVES_FILE))
    return path.is_dir() and not any(file.is_file() for file in own) and bool(job_folders(path))


def read_sweeps(folders: Mapping[str, str | Path]) -> list[Sweep]:
    """Read Hydra's multirun folders. Jobs of several folders with the same table and size form one sweep.

    Args:
        folders: paths by label. With several, the label of its folder precedes a job's name.

    Raises:
        UserError: no job of a folder has results, or a file is damaged or was not written by train.py.
    """
    sweeps: dict[tuple[str | None, ...], Sweep] = {}
    for label, path in folders.items():
        folder = Path(path)
        prefix = f"{label}/" if len(folders) > 1 else ""
        jobs = [read_job(job, prefix + job.name) for job in job_folders(folder)]
        first = next((job.place for job in jobs if job.run), None)
        if first is None:
            raise UserError(f"{folder}: no job has a {RESULTS_FILE}; all have failed or none has finished yet")
        for job in jobs:
            place = job.place if job.run else first
            key = (place.table, place.size) if place.table else (label,)
            sweeps.setdefault(key, Sweep(label, place.table, place.size, [], [])).jobs.append(job)
        own = sweeps[(first.table, first.size) if first.table else (label,)]
        own.missing.extend(prefix + name for name in _missing(folder))
    return list(sweeps.values())


def read_job(folder: Path, name: str) -> Job:
    """Read one job, or a single run.

    Raises:
        UserError: a file is damaged or was not written by train.py.
    """
    run = _read_run(folder / RESULTS_FILE)
    if run is None:
        return _unfinished(folder, name)
    options = dict(map(_option, run.overrides))
    if run.trial:
        options |= {name: f"{v:.4g}" if isinstance(v, float) else str(v) for name, v in run.trial.values.items()}
    return Job(name, folder, options, run.choices, run.seed, run)


def _read_run(file: Path) -> TrainingRun | None:
    if not file.is_file():
        return None
    report = read_json(file)
    if isinstance(report, dict) and "label" in report:
        raise UserError(f"{file} was written by evaluate.py: give the folders of its jobs one by one")
    return validated(TrainingRun, report, file, "train.py")


def _unfinished(folder: Path, name: str) -> Job:
    """Read what Hydra writes before a job starts."""
    overrides, hydra, config = (
        read_yaml(folder / "config" / f"{name}.yaml") for name in ("overrides", "hydra", "config")
    )
    given: Any = OmegaConf.to_container(overrides) or []
    choices = OmegaConf.select(hydra, "hydra.runtime.choices") or {}
    seed = OmegaConf.select(config, "seed")
    return Job(name, folder, dict(map(_option, given)), dict(choices), seed if isinstance(seed, int) else None, None)


def _option(override: str) -> tuple[str, str]:
    name, _, value = override.partition("=")
    return name.lstrip("+"), value.strip("'\"")


def _missing(folder: Path) -> list[str]:
    """Return the jobs without a folder; those after the last folder are known for Hydra's own sweeper only."""
    present = {int(job.name) for job in job_folders(folder)}
    planned = max(max(present) + 1, _planned(read_yaml(folder / "multirun.yaml")))
    return [str(number) for number in range(planned) if number not in present]


def _planned(multirun: DictConfig) -> int:
    """Return the number of jobs that Hydra's own sweeper plans; 0 if it cannot be computed."""
    try:
        if not OmegaConf.select(multirun, "hydra.sweeper._target_", default="").endswith(".BasicSweeper"):
            return 0
        given = [f"{name}={values}" for name, values in (multirun.hydra.sweeper.params or {}).items()]
        overrides = OverridesParser.create().parse_overrides([*given, *multirun.hydra.overrides.task])
        last = {own.get_key_element(): own for own in overrides}.values()  # a later value replaces an earlier one
        return math.prod(sum(1 for _ in own.sweep_string_iterator()) for own in last if own.is_discrete_sweep())
    except (HydraException, OmegaConfBaseException):  # a glob, or a reference to a resolver of the user's
        return 0
