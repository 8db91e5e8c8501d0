"""The runs of a page: those that are given one by one, and the jobs of sweeps, each with its curves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from simcse_pl.reports.html.curves import Curves, curves_of
from simcse_pl.reports.sweeps.sweep_results import (
    Job,
    Scores,
    Sweep,
    TrainingRun,
    differing,
    is_sweep,
    read_job,
    read_sweeps,
)
from simcse_pl.reports.tables.score_tables import failure_notes, keys_of
from simcse_pl.results.run_files import CURVES_FILE
from simcse_pl.results.trajectory import read_curves, run_label
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.progress import tracked
from simcse_pl.utils.tables import Table

_NOT_ENDED = "failed, or not at its end"
_DECIMALS = {"alignment": 3, "uniformity": 3, "steps": 0, "best step": 0}


@dataclass(frozen=True)
class Run:
    """A training run.

    Args:
        job: what it was given, and what came out.
        sweep: the place of its sweep among those of the page; None for a run by itself.
        curves: by their groups; none where the run has not come to its first validation.
    """

    job: Job
    sweep: int | None
    curves: Mapping[str, Curves]

    @property
    def label(self) -> str:
        """What the page calls it."""
        return self.job.name

    @property
    def state(self) -> str:
        """Whether it came to its end."""
        if self.job.run is None:
            return _NOT_ENDED
        return "ended early by the search" if self.job.run.trial and self.job.run.trial.pruned else "ended"

    @property
    def dev(self) -> float | None:
        """The best score on dev x 100; None where there is none."""
        score = 100 * self.job.run.best.spearman if self.job.run else math.nan
        return score if math.isfinite(score) else None


def read_runs(paths: Mapping[str, str | Path]) -> tuple[list[Run], list[Sweep]]:
    """All runs of a page, those of sweeps first, and the sweeps.

    Args:
        paths: folders of runs and of sweeps, by what the page calls them; with several sweeps, their jobs have the
            sweep's label before their number.

    Raises:
        UserError: a folder is neither, a sweep has no job with results, or a file is damaged.
    """
    folders = {label: Path(path) for label, path in paths.items()}
    for path in folders.values():
        if not is_sweep(path) and not (path / CURVES_FILE).is_file():
            raise UserError(f"no {CURVES_FILE} in {path}: give the folder of a training run, or of a sweep")
    sweeps = read_sweeps({label: path for label, path in folders.items() if is_sweep(path)})
    jobs: list[tuple[Job, int | None]] = [(job, place) for place, sweep in enumerate(sweeps) for job in sweep.jobs]
    jobs += [(read_job(path, label), None) for label, path in folders.items() if not is_sweep(path)]
    labels = [job.name for job, _ in jobs]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UserError(f"two runs are called {twice[0]}: tell them apart with --labels, one a folder")
    return [Run(job, sweep, _curves(job.folder)) for job, sweep in tracked(jobs, "reading curves")], sweeps


def default_label(path: str) -> str:
    """What a page calls a folder that it has been given no label for."""
    return path if is_sweep(path) else run_label(Path(path))


def _curves(folder: Path) -> Mapping[str, Curves]:
    return curves_of(read_curves(folder)) if (folder / CURVES_FILE).is_file() else {}


def options_in_common(runs: Sequence[Run]) -> dict[str, str]:
    """Model and data where they are the same in all runs, and the options that all were given alike."""
    jobs = [run.job for run in runs]
    groups = [name for name in ("model", "data") if all(name in job.choices for job in jobs)]
    names = keys_of([dict.fromkeys(groups), *(job.options for job in jobs)])
    values = {name: {job.value(name) for job in jobs} for name in names}
    return {name: own.pop() for name, own in values.items() if len(own) == 1}


def runs_table(runs: Sequence[Run]) -> Table:
    """A row a run: the options in which it differs from others, and its scores."""
    jobs = [run.job for run in runs]
    columns: dict[str, Sequence[object]] = {"run": [run.label for run in runs]}
    columns |= {name: [job.value(name) for job in jobs] for name in differing(jobs)}
    results = [job.run or TrainingRun(best=Scores(), test=Scores(), choices={}, overrides=[]) for job in jobs]
    numbers: dict[str, list[float | int | None]] = {
        "dev": [100 * own.best.spearman for own in results],
        "test": [100 * own.test.spearman for own in results],
        "before": [100 * own.before.spearman for own in results],
        "alignment": [own.best.alignment for own in results],
        "uniformity": [own.best.uniformity for own in results],
        "best step": [own.best_step for own in results],
        "steps": [own.steps for own in results],
    }
    columns |= {
        name: pd.Series(own, dtype=float).replace([math.inf, -math.inf], math.nan) for name, own in numbers.items()
    }
    states = [run.state for run in runs]
    if set(states) != {"ended"}:
        columns["state"] = states
    validations = " or ".join(dict.fromkeys(job.run.validation for job in jobs if job.run))
    about = f"Spearman x 100; dev: {validations}, which the checkpoint is chosen by; before: dev before training; "
    notes = [
        about + "alignment and uniformity are of dev"
        if validations
        else "no run has come to its end, where its scores are",
        *failure_notes({run.label: run.job.run.failed for run in runs if run.job.run}),
    ]
    return Table("runs", "Runs", pd.DataFrame(columns), {name: _DECIMALS.get(name, 2) for name in columns}, notes)
