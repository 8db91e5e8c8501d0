"""Groups of a sweep's jobs that differ in the seed alone, and their scores over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS
from simcse_pl.reports.methods import baselines, setting_of
from simcse_pl.reports.paper import Ablation, ablation
from simcse_pl.reports.sweeps.sweep_results import Job, Sweep, differing, score_names
from simcse_pl.reports.tables.score_tables import keys_of, shared_tasks
from simcse_pl.results.metrics import SPEARMAN, decimals

SCORES = ("dev", "test", "sts", "alignment", "uniformity", "transfer")
ROW = "sweep.row"
METHOD = "method"


@dataclass(frozen=True)
class Group:
    """Runs that differ in the seed alone.

    Args:
        row: the row of the sweep, spelled as in the paper; None if the sweep has no rows.
        column: the column of the paper's table; None if the sweep names none.
        options: values of the options that differ between groups, by name.
        choices: the choice in each config group, by the first run.
        runs: `seed` and SCORES by job name; correlations and shares x 100, NaN if not measured. dev and
            test are the monitored metric. Empty for a row of the paper that did not run.
    """

    row: str | None
    column: str | None
    options: Mapping[str, str]
    choices: Mapping[str, str | None]
    runs: pd.DataFrame

    @property
    def label(self) -> str:
        """The name in notes and figures."""
        parts = [
            self.row,
            self.column,
            *(value if name == METHOD else f"{name}={value}" for name, value in self.options.items()),
        ]
        return ", ".join(part for part in parts if part) or "all jobs"

    @property
    def setting(self) -> str:
        """`unsupervised` or `supervised`."""
        return setting_of(self.choices)

    @property
    def is_baseline(self) -> bool:
        """Whether the other methods of its setting are compared with it."""
        return METHOD in self.options and self.options[METHOD] == baselines().get(self.setting)


@dataclass(frozen=True)
class SeedGroups:
    """A sweep with its jobs in groups.

    Args:
        sweep: the jobs.
        paper: the table of the paper that the sweep repeats, if any.
        options: options that differ between groups and do not follow from row and column.
        columns: columns of the groups, those of the paper's table first, in its order.
        groups: with rows of the paper, all of its rows in its order, then the others; of methods, SimCSE first.
        sts_tasks, transfer_tasks: the test tasks that all runs with scores of some of them have.
    """

    sweep: Sweep
    paper: Ablation | None
    options: list[str]
    columns: list[str]
    groups: list[Group]
    sts_tasks: list[str]
    transfer_tasks: list[str]

    @property
    def title(self) -> str:
        """The paper's table, or the sweep's name and folder; and its size."""
        name = (self.sweep.table or "").replace("_", " ")
        own = f"{name} ({self.sweep.label})" if name else self.sweep.label
        title = f"Table {self.paper.number} of the paper, {self.paper.varied}" if self.paper else own
        return f"{title}, size={self.sweep.size}" if self.sweep.size else title

    @property
    def score_name(self) -> str:
        """The name and scale of the scores on dev and test."""
        return score_names(self.sweep.runs)

    @property
    def comparable(self) -> bool:
        """Whether the scores are of the paper's metric."""
        return all(run.monitor == SPEARMAN for run in self.sweep.runs)

    @property
    def decimals(self) -> int:
        """The number of decimals of these scores."""
        return max(decimals(run.monitor) for run in self.sweep.runs)

    @property
    def lower_is_better(self) -> bool:
        """Whether the best score on dev is the lowest."""
        return self.sweep.runs[0].mode == "min"

    @property
    def has_rows(self) -> bool:
        """Whether the sweep has rows."""
        return any(group.row is not None for group in self.groups)

    @property
    def compares_methods(self) -> bool:
        """Whether the groups are of several methods."""
        return METHOD in self.options

    @property
    def known_columns(self) -> list[str]:
        """The columns that the paper's table has."""
        return [column for column in self.columns if self.paper and column in self.paper.settings]

    def over_seeds(self, score: str) -> pd.DataFrame:
        """Return `mean`, `std` (sample standard deviation) and `count` of one of SCORES, one row per group."""
        statistics = [group.runs[score].astype(float).agg(["mean", "std", "count"]) for group in self.groups]
        return pd.DataFrame(statistics).reset_index(drop=True)


def group_by_seed(sweep: Sweep) -> SeedGroups:
    """Group the jobs of a sweep by row, column and the other options that differ.

    A job without results has no known column. In a sweep with rows it is in no group.
    """
    paper = ablation(sweep.table) if sweep.table else None
    sts = shared_tasks(pd.DataFrame([run.sts for run in sweep.runs]), STS_TASKS)
    transfer = shared_tasks(pd.DataFrame([run.transfer_dev for run in sweep.runs]), TRANSFER_TASKS)
    has_rows = any(job.place.row is not None for job in sweep.jobs)
    places = {job.name: (_row(job, paper), job.place.column) for job in sweep.jobs if job.run or not has_rows}
    jobs = [job for job in sweep.jobs if job.name in places]
    options = [name for name in differing(sweep.jobs) if name not in ("seed", ROW)]
    if has_rows:  # an option that is the same in all jobs of a row and column follows from them
        options = [n for n in options if len({(places[j.name], j.value(n)) for j in jobs}) > len({*places.values()})]
    found: dict[tuple[tuple[str | None, str | None], tuple[str, ...]], list[Job]] = {}
    for job in jobs:
        found.setdefault((places[job.name], tuple(map(job.value, options))), []).append(job)
    groups = [
        Group(*place, dict(zip(options, values, strict=True)), own[0].choices, _scores(own, sts, transfer))
        for (place, values), own in found.items()
    ]
    if METHOD in options:
        order = [*baselines(), *(own.setting for own in groups)]
        groups.sort(key=lambda own: (order.index(own.setting), not own.is_baseline))
    columns = keys_of({group.column: None} for group in groups if group.column)
    if paper:
        known = [name for name in paper.settings if name in columns]
        columns = [*known, *(name for name in columns if name not in known)]
    if paper and has_rows:
        groups = _in_papers_order(groups, paper, columns)
    return SeedGroups(sweep, paper, options, columns, groups, sts, transfer)


def _row(job: Job, paper: Ablation | None) -> str | None:
    row = None if job.place.row is None else str(job.place.row)
    return row and ((paper and paper.row(row)) or row)


def _scores(jobs: Sequence[Job], sts: Sequence[str] = (), transfer: Sequence[str] = ()) -> pd.DataFrame:
    rows = {}
    for job in jobs:
        if run := job.run:
            means = {"sts": _mean(run.sts, sts), "transfer": _mean(run.transfer_dev, transfer)}
            rows[job.name] = {"seed": str(job.seed), **run.scores, **means}
    return pd.DataFrame.from_dict(rows, orient="index", columns=None if rows else ["seed", *SCORES])


def _mean(scores: Mapping[str, float], tasks: Sequence[str]) -> float:
    """Return the mean x 100 over tasks; NaN if one of them, or all of them, were not measured."""
    return float(100 * pd.Series(scores, dtype=float).reindex(tasks).mean(skipna=False))


def _in_papers_order(groups: list[Group], paper: Ablation, columns: Sequence[str]) -> list[Group]:
    """Return the groups in the order of the paper's table, with an empty group for each cell that did not run."""
    ordered = []
    present: Sequence[str | None] = columns or [None]
    for row, figures in paper.rows.items():
        for column in present:
            own = [group for group in groups if (group.row, group.column) == (row, column)]
            empty = [Group(row, column, {}, {}, _scores([]))] if column is None or column in figures else []
            ordered += own or empty
    return [*ordered, *(group for group in groups if group.row not in paper.rows)]
