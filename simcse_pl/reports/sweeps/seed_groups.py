"""Jobs of a sweep that differ in nothing but the seed are one group: means and standard deviations over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS
from simcse_pl.reports.paper import Ablation, ablation
from simcse_pl.reports.sweeps.sweep_results import Job, Sweep, TrainingRun, differing
from simcse_pl.reports.tables.score_tables import keys_of, shared_tasks
from simcse_pl.reports.tables.spread import MeanStd, spread

SCORES = ("dev", "test", "alignment", "uniformity", "transfer")
ROW = "sweep.row"
_NO_COLUMN = ("seed", ROW)  # options that have a place of their own


@dataclass(frozen=True)
class Group:
    """Runs that differ in the seed alone: a row of the sweep's table.

    Args:
        row: of the sweep, spelled as the paper does; None where the sweep has no rows.
        column: of the paper's table, as the sweep has it.
        options: what else differs from other groups, by name.
        jobs: of any number, also none; those without results have no scores.
    """

    row: str | None
    column: str | None
    options: Mapping[str, str]
    jobs: Sequence[Job]

    @property
    def label(self) -> str:
        """What notes and figures call it."""
        parts = [self.row, self.column, *(f"{name}={value}" for name, value in self.options.items())]
        return ", ".join(part for part in parts if part) or "all jobs"

    @property
    def runs(self) -> list[TrainingRun]:
        """Of its jobs, those that have results."""
        return [job.run for job in self.jobs if job.run]


@dataclass(frozen=True)
class SeedGroups:
    """A sweep, its jobs in groups.

    Args:
        sweep: the jobs.
        paper: the table of the paper that it repeats, if it repeats one.
        options: that differ between groups, and that rows and columns do not tell already.
        columns: of the paper's table that the runs stand in, in its order; none where they do not say.
        groups: in the order of the paper's table, which has all its rows here; the others in the order of the jobs.
        transfer_tasks: that all runs have which have any.
    """

    sweep: Sweep
    paper: Ablation | None
    options: list[str]
    columns: list[str]
    groups: list[Group]
    transfer_tasks: list[str]

    @property
    def title(self) -> str:
        """The paper's table, or the sweep's own name and folder; and its size."""
        name = (self.sweep.table or "").replace("_", " ")
        own = f"{name} ({self.sweep.label})" if name else self.sweep.label
        title = f"Table {self.paper.number} of the paper, {self.paper.varied}" if self.paper else own
        return f"{title}, size={self.sweep.size}" if self.sweep.size else title

    @property
    def has_rows(self) -> bool:
        """Whether the sweep names its rows."""
        return any(group.row is not None for group in self.groups)

    @property
    def known_columns(self) -> list[str]:
        """Those of its columns that the paper's table has."""
        return [column for column in self.columns if self.paper and column in self.paper.settings]

    def scores(self, score: str, group: Group) -> list[float]:
        """One of SCORES, of each run of a group that has it; correlations and accuracies x 100."""
        values = [self._score(score, run) for run in group.runs]
        return [value for value in values if value is not None and math.isfinite(value)]

    def spreads(self, score: str) -> list[MeanStd | None]:
        """One of SCORES over the seeds of each group."""
        return [spread(self.scores(score, group)) for group in self.groups]

    def _score(self, score: str, run: TrainingRun) -> float | None:
        match score:
            case "dev":
                return 100 * run.best.spearman
            case "test":
                return 100 * run.test.spearman
            case "alignment":
                return run.best.alignment
            case "uniformity":
                return run.best.uniformity
        accuracies = [accuracy for task in self.transfer_tasks if (accuracy := run.transfer_dev.get(task)) is not None]
        return 100 * fmean(accuracies) if accuracies and len(accuracies) == len(self.transfer_tasks) else None


def group_by_seed(sweep: Sweep) -> SeedGroups:
    """The groups of a sweep: by its rows and columns where it has them, and by the options that differ besides."""
    paper = ablation(sweep.table) if sweep.table else None
    options = [name for name in differing(sweep.jobs) if name not in _NO_COLUMN]
    rows = {job.name: _row(job, paper) for job in sweep.jobs}
    columns = _columns(sweep, options)
    placed = sweep.jobs
    if any(rows.values()):
        placed = [job for job in sweep.jobs if rows[job.name] is not None]
        places = {job.name: (rows[job.name], columns[job.name]) for job in placed}
        # an option that is the same in all jobs of a place is what the place stands for
        options = [n for n in options if len({(places[j.name], j.value(n)) for j in placed}) > len({*places.values()})]
    found: dict[tuple[str | None, ...], list[Job]] = {}
    for job in placed:
        found.setdefault((rows[job.name], columns[job.name], *(job.value(name) for name in options)), []).append(job)
    groups = [
        Group(row, column, {name: own[0].value(name) for name in options}, own)
        for (row, column, *_), own in found.items()
    ]
    present = _in_order(keys_of({group.column: None} for group in groups if group.column), paper)
    groups = _with_the_papers_rows(groups, paper, present) if any(rows.values()) else groups
    accuracies = [{task: own for task, own in run.transfer_dev.items() if own is not None} for run in sweep.runs]
    return SeedGroups(sweep, paper, options, present, groups, shared_tasks(accuracies, TRANSFER_TASKS))


def _row(job: Job, paper: Ablation | None) -> str | None:
    row = job.options.get(ROW) if job.place.row is None else str(job.place.row)
    return row and ((paper and paper.row(row)) or row)


def _columns(sweep: Sweep, options: Sequence[str]) -> dict[str, str | None]:
    """The column of each job, by its name; of one without results, that of another with the same options."""
    known = {tuple(map(job.value, options)): job.place.column for job in sweep.jobs if job.run}
    return {job.name: job.place.column if job.run else known.get(tuple(map(job.value, options))) for job in sweep.jobs}


def _in_order(columns: list[str], paper: Ablation | None) -> list[str]:
    settings = paper.settings if paper else ()
    return [*(name for name in settings if name in columns), *(name for name in columns if name not in settings)]


def _with_the_papers_rows(groups: list[Group], paper: Ablation | None, columns: list[str]) -> list[Group]:
    """The groups in the order of the paper's table, an empty one for what it has and the sweep has not."""
    ordered = []
    places: list[str | None] = [*columns] or [None]
    for row, figures in (paper.rows if paper else {}).items():
        for column in places:
            own = [group for group in groups if (group.row, group.column) == (row, column)]
            empty = [Group(row, column, {}, [])] if column is None or column in figures else []
            ordered += own or empty
    return [*ordered, *(group for group in groups if group not in ordered)]
