"""What the figure of a sweep shows: scores on dev by what was varied, ours and the paper's, in series."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simcse_pl.reports.sweeps.seed_groups import SeedGroups
from simcse_pl.reports.tables.spread import MeanStd

_MOST_SERIES = 8  # that a reader can tell apart


@dataclass(frozen=True)
class Point:
    """A score on dev x 100.

    Args:
        value: of what was varied.
        score: over seeds.
        runs: the score of each.
    """

    value: str
    score: MeanStd
    runs: Sequence[float] = ()


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Args:
        label: what the legend calls them.
        points: in the order of the table.
        number: among ours, or among the paper's; what is of one number looks alike.
        paper: whether they are the paper's.
    """

    label: str
    points: list[Point]
    number: int = 0
    paper: bool = False


def as_number(value: str) -> float | None:
    """A finite number as one; None for anything else."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def seed_series(groups: SeedGroups) -> Series:
    """The score of each seed, of a sweep that varies nothing else."""
    jobs = [(job.seed, job.run) for group in groups.groups for job in group.jobs if job.run]
    scores = [(str(seed), 100 * run.best.spearman) for seed, run in jobs if math.isfinite(run.best.spearman)]
    return Series("measured", [Point(seed, MeanStd(score, None, 1), [score]) for seed, score in scores])


def measured_series(groups: SeedGroups) -> tuple[str, list[Series]]:
    """What was varied, and the scores by it.

    It is the rows, where the sweep has them; else the option that has the most numbers as values, or the first. What
    differs besides tells series apart; where that makes too many, all points are one series.
    """
    option = None if groups.has_rows or not groups.options else _main_option(groups)
    series: dict[str, list[Point]] = {}
    for group, score in zip(groups.groups, groups.spreads("dev"), strict=True):
        if score is None:
            continue
        besides = [group.column] if groups.has_rows and len(groups.columns) > 1 else []
        besides += [f"{name}={value}" for name, value in group.options.items() if name != option]
        label = ", ".join(["measured", *filter(None, besides)])
        value = group.options[option] if option else group.row or group.label
        series.setdefault(label, []).append(Point(value, score, groups.scores("dev", group)))
    if len(series) > _MOST_SERIES:
        series = {"measured": [point for points in series.values() for point in points]}
    varied = option or (groups.paper.varied if groups.paper else "")
    return varied, [Series(label, points, number) for number, (label, points) in enumerate(series.items())]


def paper_series(groups: SeedGroups) -> list[Series]:
    """The paper's figures of the columns that the sweep stands in; of all, where it does not say."""
    paper = groups.paper
    if paper is None or not groups.has_rows:
        return []
    series = []
    for number, column in enumerate(groups.known_columns or paper.settings or ("dev",)):
        figures = {row: own[column] for row, own in paper.rows.items() if column in own}
        label = "paper" if column == "dev" else f"paper, {column}"
        series.append(
            Series(label, [Point(row, MeanStd(f, None, 1)) for row, f in figures.items()], number, paper=True)
        )
    return series


def _main_option(groups: SeedGroups) -> str:
    values = {option: {group.options[option] for group in groups.groups} for option in groups.options}
    return max(groups.options, key=lambda option: sum(as_number(value) is not None for value in values[option]))
