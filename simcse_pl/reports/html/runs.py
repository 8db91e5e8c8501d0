"""The runs of a page: single runs and the jobs of sweeps, with their curves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from simcse_pl.reports.html.curves import Curves, curves_of
from simcse_pl.reports.sweeps.sweep_results import (
    Job,
    Sweep,
    differing,
    is_sweep,
    read_job,
    read_sweeps,
    score_names,
)
from simcse_pl.reports.tables.score_tables import failure_notes, keys_of
from simcse_pl.results.metrics import SPEARMAN, decimals
from simcse_pl.results.run_files import CURVES_FILE
from simcse_pl.results.trajectory import read_curves, run_label
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import tracked

_SCORES = ("dev", "test", "before", "alignment", "uniformity", "best step", "steps")
_DECIMALS = {"alignment": 3, "uniformity": 3, "steps": 0, "best step": 0}


@dataclass(frozen=True)
class Run:
    """A training run.

    Args:
        job: its options and results.
        sweep: the index of its sweep on the page; None for a single run.
        curves: by group; empty before the first validation.
    """

    job: Job
    sweep: int | None
    curves: Mapping[str, Curves]

    @property
    def monitor(self) -> str:
        """The curve that chooses the checkpoint."""
        return f"val/{self.job.run.monitor if self.job.run else SPEARMAN}"

    @property
    def dev(self) -> float | None:
        """The best score on dev as tables show it; None if there is none."""
        score = self.job.run.scores["dev"] if self.job.run else math.nan
        return score if math.isfinite(score) else None


def read_runs(paths: Mapping[str, str | Path]) -> tuple[list[Run], list[Sweep]]:
    """Return all runs of a page, those of sweeps first, and the sweeps.

    Args:
        paths: folders of runs and sweeps by label. With several sweeps, the sweep's label precedes
            the number of a job.

    Raises:
        UserError: a folder is neither a run nor a sweep, no job of a sweep has results, or a file is damaged.
    """
    folders = {label: Path(path) for label, path in paths.items()}
    for path in folders.values():
        if not is_sweep(path) and not (path / CURVES_FILE).is_file():
            raise UserError(f"no {CURVES_FILE} in {path}: give the folder of a training run or of a sweep")
    sweeps = read_sweeps({label: path for label, path in folders.items() if is_sweep(path)})
    jobs: list[tuple[Job, int | None]] = [(job, index) for index, sweep in enumerate(sweeps) for job in sweep.jobs]
    jobs += [(read_job(path, label), None) for label, path in folders.items() if not is_sweep(path)]
    labels = [job.name for job, _ in jobs]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UserError(f"two runs have the label {twice[0]}: give different ones with --labels, one per folder")
    runs = []
    for job, index in tracked(jobs, "reading curves"):
        has_curves = (job.folder / CURVES_FILE).is_file()
        runs.append(Run(job, index, curves_of(read_curves(job.folder)) if has_curves else {}))
    return runs, sweeps


def default_label(path: str) -> str:
    """Return the label of a folder on a page if the user gives none."""
    return path if is_sweep(path) else run_label(Path(path))


def options_in_common(runs: Sequence[Run]) -> dict[str, str]:
    """Return the model, the data and the given options that are the same in all runs."""
    jobs = [run.job for run in runs]
    groups = [name for name in ("model", "data") if all(name in job.choices for job in jobs)]
    names = keys_of([dict.fromkeys(groups), *(job.options for job in jobs)])
    values = {name: {job.value(name) for job in jobs} for name in names}
    return {name: own.pop() for name, own in values.items() if len(own) == 1}


def runs_table(runs: Sequence[Run]) -> Table:
    """Return a table with one row per run: the options in which runs differ, and scores."""
    jobs = [run.job for run in runs]
    frame = pd.DataFrame({"run": [job.name for job in jobs]})
    for name in differing(jobs):
        frame[name] = [job.value(name) for job in jobs]
    scores = [
        {**run.scores, "before": run.score(run.before), "best step": run.best_step, "steps": run.steps} if run else {}
        for run in (job.run for job in jobs)
    ]
    frame[[*_SCORES]] = pd.DataFrame(scores, columns=_SCORES, dtype=float)
    ended = {job.name: "pruned by the search" if job.pruned else "finished" for job in jobs if job.run}
    states = [ended.get(job.name, "failed or unfinished") for job in jobs]
    if any(state != "finished" for state in states):
        frame["state"] = states
    finished = [job.run for job in jobs if job.run]
    for name in ("test", "alignment", "uniformity"):
        if finished and not any(run.test if name == "test" else name in run.best for run in finished):
            del frame[name]
    validations = " or ".join(dict.fromkeys(run.validation for run in finished))
    about = (
        f"{score_names(finished)}; dev: {validations}, which selects the checkpoint; before: dev before training"
        + "; alignment and uniformity are measured on dev" * any("alignment" in run.best for run in finished)
    )
    digits = _DECIMALS | dict.fromkeys(
        ("dev", "test", "before"), max((decimals(run.monitor) for run in finished), default=2)
    )
    failures = failure_notes({job.name: job.run.failed for job in jobs if job.run})
    notes = [about if validations else "no run has finished; scores are measured at the end", *failures]
    return Table("runs", "Runs", frame, {name: digits.get(name, 2) for name in frame}, notes)
