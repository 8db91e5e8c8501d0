"""Sweeps of train.py: what their jobs left in their folders, and which jobs make one sweep."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, field_validator

import simcse_pl.sweeps.resolvers  # noqa: F401  that the config of a sweep refers to
from simcse_pl.reports.tables.score_tables import keys_of
from simcse_pl.results.evaluation_results import validated
from simcse_pl.results.run_files import CURVES_FILE, RESULTS_FILE, job_folders
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import read_json
from simcse_pl.utils.yaml_files import read_yaml

_MOST_JOBS = 10_000  # that are looked for: a range of a few characters names any number


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Scores(_Shape):
    """Of an encoder on a split; not a number, null in the file, where training came apart."""

    spearman: float = math.nan
    alignment: float = math.nan
    uniformity: float = math.nan

    @field_validator("*", mode="before")
    @classmethod
    def _null_is_no_number(cls, value: Any) -> Any:
        return math.nan if value is None else value


class Place(_Shape):
    """Where a job stands in its sweep: in which of the paper's tables, and in which row and column of it."""

    table: str | None = None
    row: str | int | float | None = None
    column: str | None = None
    size: str | None = None


class Trial(_Shape):
    """What a search proposed for a job, and whether it ended it early."""

    values: Mapping[str, str | int | float | bool | None]
    pruned: bool = False


class TrainingRun(_Shape):
    """What train.py writes as results.json."""

    best: Scores
    test: Scores
    choices: Mapping[str, str | None]
    overrides: list[str]
    before: Scores = Scores()
    test_before: Scores = Scores()
    validation: str = "dev"
    steps: int | None = None
    best_step: int | None = None
    seed: int | None = None
    sweep: Place | None = None
    trial: Trial | None = None
    transfer_dev: Mapping[str, float | None] = {}
    transfer_classifier: str = "scikit-learn"
    failed: Mapping[str, str] = {}


@dataclass(frozen=True)
class Job:
    """One job of a sweep.

    Args:
        name: of its folder.
        folder: that it wrote to.
        options: that it was given, or a search chose for it, by name; the seed is among them.
        choices: of each of Hydra's groups.
        seed: None where nothing says which.
        run: what came out; None where the job failed or has not ended.
    """

    name: str
    folder: Path
    options: Mapping[str, str]
    choices: Mapping[str, str | None]
    seed: int | None
    run: TrainingRun | None

    @property
    def place(self) -> Place:
        """Where it stands in its sweep; nowhere without results."""
        return (self.run and self.run.sweep) or Place()

    def value(self, option: str) -> str:
        """What an option was set to."""
        return self.options.get(option) or self.choices.get(option) or "default"


@dataclass(frozen=True)
class Sweep:
    """Jobs that are compared with each other.

    Args:
        label: the folder, or what the user calls it.
        table: the table of the paper that it repeats, by its name in paper.yaml, or a name of its own; None for none.
        size: `mini` or `paper`; None for none.
        jobs: in their order, one with results at least.
        missing: the folders that Hydra has planned and that are not there.
    """

    label: str
    table: str | None
    size: str | None
    jobs: list[Job]
    missing: list[str]

    @property
    def runs(self) -> list[TrainingRun]:
        """Of the jobs that have results."""
        return [job.run for job in self.jobs if job.run]


def differing(jobs: Sequence[Job]) -> list[str]:
    """The options that are not the same in all jobs, in the order in which they were first given."""
    names = keys_of(job.options for job in jobs)
    return [name for name in names if len({job.value(name) for job in jobs}) > 1]


def is_sweep(path: str | Path) -> bool:
    """Whether a folder holds jobs, each in a folder named by its number, and is not a run itself."""
    path = Path(path)
    own = (path / name for name in (RESULTS_FILE, CURVES_FILE))
    return path.is_dir() and not any(file.is_file() for file in own) and bool(job_folders(path))


def read_sweeps(folders: Mapping[str, str | Path]) -> list[Sweep]:
    """The sweeps in Hydra's multirun folders: one a folder, but those of one name and one size are one sweep.

    Args:
        folders: by label. With more than one, a job's name has its folder's label before it.

    Raises:
        UserError: a folder has no job with results, or a file is damaged or is not train.py's.
    """
    sweeps: dict[tuple[str | None, ...], Sweep] = {}
    for label, path in folders.items():
        folder = Path(path)
        prefix = f"{label}/" if len(folders) > 1 else ""
        jobs = [read_job(job, prefix + job.name) for job in job_folders(folder)]
        finished = [job for job in jobs if job.run]
        if not finished:
            raise UserError(f"no job of {folder} has a {RESULTS_FILE}: all have failed, or none has ended yet")
        own = []
        for job in jobs:
            # a job without results belongs where another does that was given the same sweep
            like = (other for other in finished if other.options.get("sweep") == job.options.get("sweep"))
            place = (job if job.run else next(like, finished[0])).place
            key = (place.table, place.size) if place.table else (label,)
            sweep = sweeps.setdefault(key, Sweep(label, place.table, place.size, [], []))
            sweep.jobs.append(job)
            if sweep not in own:
                own.append(sweep)
        for sweep in own:
            sweep.missing.extend(prefix + name for name in _missing(folder))
    return list(sweeps.values())


def read_job(folder: Path, name: str) -> Job:
    """One job, or a run that is none of a sweep's.

    Raises:
        UserError: a file is damaged or is not train.py's.
    """
    run = _run(folder / RESULTS_FILE)
    record = _hydras_record(folder / "config") if run is None else run.model_dump()
    options = dict(map(_option, record["overrides"]))
    if run and run.trial:
        options |= {name: f"{v:.4g}" if isinstance(v, float) else str(v) for name, v in run.trial.values.items()}
    return Job(name, folder, options, record["choices"], record["seed"], run)


def _run(file: Path) -> TrainingRun | None:
    if not file.is_file():
        return None
    report = read_json(file)
    if isinstance(report, dict) and "label" in report:
        raise UserError(f"{file} is of evaluate.py, not of train.py: give the folders of its jobs, one by one")
    return validated(TrainingRun, report, file, "train.py")


def _hydras_record(folder: Path) -> dict[str, Any]:
    """Options, choices of groups and seed, from what Hydra writes before a job starts."""
    overrides, hydra, config = (read_yaml(folder / f"{name}.yaml") for name in ("overrides", "hydra", "config"))
    choices = OmegaConf.select(hydra, "hydra.runtime.choices") or {}
    seed = OmegaConf.select(config, "seed")
    return {
        "overrides": OmegaConf.to_container(overrides) or [],
        "choices": dict(choices),
        "seed": seed if isinstance(seed, int) else None,
    }


def _option(override: str) -> tuple[str, str]:
    name, _, value = override.partition("=")
    return name.lstrip("+"), value.strip("'\"")


def _missing(folder: Path) -> list[str]:
    """The jobs that were planned, numbered from 0 on, and have no folder."""
    present = {int(job.name) for job in job_folders(folder)}
    planned = max(max(present) + 1, _planned(read_yaml(folder / "multirun.yaml")))
    return [str(number) for number in range(min(planned, _MOST_JOBS)) if number not in present]


def _planned(multirun: Any) -> int:
    """How many combinations Hydra's own sweeper makes of what it was given; 0 where that cannot be told."""
    try:
        hydra = OmegaConf.select(multirun, "hydra") or OmegaConf.create()
        if not OmegaConf.select(hydra, "sweeper._target_", default="").endswith(".BasicSweeper"):
            return 0
        given = [f"{name}={values}" for name, values in (hydra.sweeper.params or {}).items()]
        overrides = OverridesParser.create().parse_overrides([*given, *hydra.overrides.task])
        last = {own.get_key_element(): own for own in overrides}.values()  # a later one of the same name goes before
        values = (islice(own.sweep_string_iterator(), _MOST_JOBS) for own in last if own.is_discrete_sweep())
        return math.prod(sum(1 for _ in own) for own in values)
    except (
        HydraException,
        OmegaConfBaseException,
        AttributeError,
        TypeError,
    ):  # of a glob, which only Hydra can expand
        return 0
