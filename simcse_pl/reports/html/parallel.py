"""Parallel coordinates of a sweep: one line per job, from the options that differ to the scores."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.ticker import LogLocator

from simcse_pl.reports.sweeps.seed_groups import ROW, SeedGroups
from simcse_pl.reports.sweeps.sweep_results import differing
from simcse_pl.utils.validation import as_number

_SCORES = ("alignment", "uniformity", "test", "dev")  # in the order of the axes
_TRIAL = "search.trial"  # the number of the job, not an option of training
_MAX_EVENLY_SPACED = 8  # values of an option; more numbers are on a scale
_WIDE = 30.0  # the ratio of the largest to the smallest from which a scale is logarithmic


@dataclass(frozen=True)
class Axis:
    """One coordinate.

    Args:
        label: an option or a score.
        values: the position of each job.
        ticks: positions with a name; if there are none, the values are shown as numbers.
        names: the names of the ticks.
    """

    label: str
    values: list[float]
    ticks: list[float]
    names: list[str]


@dataclass(frozen=True)
class ParallelCoordinates:
    """The lines of a sweep.

    Args:
        jobs: names of the jobs that have a score on dev.
        left_out: names of the others.
        axes: options that differ, then scores.
    """

    jobs: list[str]
    left_out: list[str]
    axes: list[Axis]


def parallel_coordinates(groups: SeedGroups) -> ParallelCoordinates | None:
    """Return the coordinates of a sweep's jobs; None with fewer than two scores or without differing options."""
    jobs = [job for job in groups.sweep.jobs if job.run and math.isfinite(job.run.scores["dev"])]
    options = [name for name in differing(jobs) if name != _TRIAL]
    if len(jobs) < 2 or not options:
        return None
    row = groups.paper.varied if groups.paper else "row"
    axes = [option_axis(row if name == ROW else name, [job.value(name) for job in jobs]) for name in options]
    scores = {name: [job.run.scores[name] for job in jobs if job.run] for name in _SCORES}
    axes += [Axis(name, values, [], []) for name, values in scores.items() if all(map(math.isfinite, values))]
    names = [job.name for job in jobs]
    return ParallelCoordinates(names, [job.name for job in groups.sweep.jobs if job.name not in names], axes)


def option_axis(label: str, values: Sequence[str]) -> Axis:
    """Return the axis of an option: values evenly spaced, sorted numbers before names; many numbers on a scale."""
    found = {value: number for value in values if (number := as_number(value)) is not None}
    names = [value for value in dict.fromkeys(values) if value not in found]
    if len(found) <= _MAX_EVENLY_SPACED or names:
        order = sorted(found, key=lambda value: found[value]) + names
        return Axis(label, [float(order.index(v)) for v in values], [float(k) for k in range(len(order))], order)
    numbers = [found[value] for value in values]
    low, high = min(numbers), max(numbers)
    if low <= 0 or high < _WIDE * low:
        return Axis(label, numbers, [], [])
    ticks = [tick for tick in LogLocator(subs=(1, 2, 5)).tick_values(low, high) if low <= tick <= high]
    return Axis(label, [math.log10(n) for n in numbers], [math.log10(t) for t in ticks], [f"{t:g}" for t in ticks])
