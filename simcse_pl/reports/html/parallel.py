"""Parallel coordinates of a sweep: a line a job, from the options that were swept to the scores that came out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simcse_pl.reports.sweeps.seed_groups import ROW, SeedGroups
from simcse_pl.reports.sweeps.sweep_results import Job, as_number, differing

_COUNTED = "search.trial"  # the number of the job, and no option of training
_MOST_EVENLY_SPACED = 8  # values of an option; more numbers than that stand on a scale
_WIDE = 30.0  # the largest over the smallest, of a logarithmic scale
_SHORT_STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Axis:
    """One of the coordinates.

    Args:
        label: an option or a score.
        values: where the jobs stand on it, in their order.
        ticks: which places have a name; where none has, the values are numbers to scale.
        names: of the ticks.
    """

    label: str
    values: list[float]
    ticks: list[float]
    names: list[str]


@dataclass(frozen=True)
class ParallelCoordinates:
    """What is drawn of a sweep.

    Args:
        jobs: that have a score on dev, by name; the others cannot be drawn.
        left_out: the others.
        axes: options that differ, then scores.
    """

    jobs: list[str]
    left_out: list[str]
    axes: list[Axis]


def parallel_coordinates(groups: SeedGroups) -> ParallelCoordinates | None:
    """The coordinates of a sweep's jobs; None where fewer than two have a score, or no option differs between them."""
    scored = [job for job in groups.sweep.jobs if job.run and math.isfinite(job.run.best.spearman)]
    options = [name for name in differing(scored) if name != _COUNTED]
    if len(scored) < 2 or not options:
        return None
    row = groups.paper.varied if groups.paper else "row"
    axes = [option_axis(row if name == ROW else name, [job.value(name) for job in scored]) for name in options]
    left_out = [job.name for job in groups.sweep.jobs if job not in scored]
    return ParallelCoordinates([job.name for job in scored], left_out, [*axes, *_score_axes(scored)])


def option_axis(label: str, values: Sequence[str]) -> Axis:
    """An option: its values evenly spaced, numbers in their order before names; many numbers to scale.

    The scale is logarithmic where the numbers span more than an order of magnitude and a half.

    Args:
        label: of the axis.
        values: of the jobs.
    """
    found = {value: as_number(value) for value in values}
    numbers = {value: number for value, number in found.items() if number is not None}
    if len(found) > _MOST_EVENLY_SPACED and len(numbers) == len(found):
        return _scale(label, [numbers[value] for value in values])
    order = sorted(numbers, key=lambda value: numbers[value]) + [value for value in found if value not in numbers]
    places = [float(order.index(value)) for value in values]
    return Axis(label, places, [float(place) for place in range(len(order))], order)


def _scale(label: str, numbers: Sequence[float]) -> Axis:
    low, high = min(numbers), max(numbers)
    if low <= 0 or high < _WIDE * low:
        return Axis(label, list(numbers), [], [])
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**exponent for exponent in exponents for step in _SHORT_STEPS]
    ticks = [tick for tick in ticks if low <= tick <= high]
    return Axis(label, [math.log10(n) for n in numbers], [math.log10(t) for t in ticks], [f"{t:g}" for t in ticks])


def _score_axes(jobs: Sequence[Job]) -> list[Axis]:
    runs = [job.run for job in jobs if job.run]
    scores = {
        "alignment": [run.best.alignment for run in runs],
        "uniformity": [run.best.uniformity for run in runs],
        "test": [100 * run.test.spearman for run in runs],
        "dev": [100 * run.best.spearman for run in runs],
    }
    return [Axis(name, values, [], []) for name, values in scores.items() if all(map(math.isfinite, values))]
