"""The figure of a sweep: scores on dev against what was varied, and the paper's beside them as hollow marks."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from simcse_pl.reports.figures.style import COLOURS, DASHES, MARKERS, STYLE, WIDTH
from simcse_pl.reports.sweeps.seed_groups import SeedGroups
from simcse_pl.reports.sweeps.series import Series, as_number, measured_series, paper_series, seed_series
from simcse_pl.reports.tables.score_tables import keys_of

_NAME_WIDTH = 30  # characters of a line
_LEGIBLE = 1 / 3  # of an axis: what ours and the paper's scores must each take to share it
_READABLE_GAP = 0.05  # between ticks, of an axis
_SAME_GAP = 1e-9  # so that rounding does not choose between the two kinds of axis
_APART = 5.0  # points between series of one value
_PAPERS_DASHES = (0, (1, 2))
_DOT: dict[str, Any] = {"color": "0.6", "marker": ".", "markersize": 3, "linestyle": "none", "zorder": 1}
_BAR: dict[str, Any] = {"linewidth": 1}


@matplotlib.rc_context(STYLE)
def sweep_figure(groups: SeedGroups) -> Figure | None:
    """Scores on dev by what was varied: means with error bars of a standard deviation, and each seed's as a dot.

    Numbers are on an axis, a logarithmic one where that keeps them further apart, and names beside it, each in a place
    of its own; without numbers, names stand one below the other. The paper's points share an axis with ours where both
    stay legible; else they have a panel of their own. Of seeds alone each is a point, their mean a line in a band of
    a standard deviation.

    Args:
        groups: of a sweep.

    Returns:
        None where nobody has a score.
    """
    if not any(groups.spreads("dev")):
        return None
    if len(groups.groups) == 1 and not groups.has_rows:
        return _seeds(groups)
    varied, measured = measured_series(groups)
    paper = paper_series(groups)
    panels = [measured, paper] if paper and not _legible_together(measured, paper) else [[*measured, *paper]]
    rows = groups.paper.rows if paper and groups.paper else {}
    values = keys_of([rows, *({point.value: None} for own in measured for point in own.points)])
    numbers = {as_number(value) for value in values} - {None}
    draw = _against_numbers if len(numbers) > 1 else _against_names
    return draw(panels, values, varied)


def _seeds(groups: SeedGroups) -> Figure:
    series = seed_series(groups)
    figure = _against_names([[series]], keys_of({point.value: None} for point in series.points), "seed")
    (overall,) = groups.spreads("dev")
    if overall is not None and overall.deviation is not None:
        axes = figure.axes[0]
        ends = overall.mean - overall.deviation, overall.mean + overall.deviation
        axes.axvspan(*ends, color="0.9", linewidth=0, zorder=0)
        axes.axvline(overall.mean, color="0.4", linewidth=0.8, linestyle=DASHES[1], zorder=0)
        axes.set_title(f"mean ± standard deviation: {overall:.2f}")
    return figure


def _legible_together(measured: Sequence[Series], paper: Sequence[Series]) -> bool:
    """Whether the scores of each take enough of an axis that shows both."""
    ours, theirs = ([point.score.mean for own in series for point in own.points] for series in (measured, paper))
    needed = _LEGIBLE * (max(ours + theirs) - min(ours + theirs))
    return all(max(scores) - min(scores) >= needed for scores in (ours, theirs))


def _against_numbers(panels: Sequence[Sequence[Series]], values: Sequence[str], varied: str) -> Figure:
    """A panel below the other, names in a part of their own to the right of the numbers."""
    names = [value for value in values if as_number(value) is None]
    figure = Figure((WIDTH, 2.0 * len(panels) + 0.7), layout="constrained")
    widths = [5, *[0.4 + 0.5 * len(names)] * bool(names)]
    grid = figure.subplots(len(panels), len(widths), sharex="col", sharey="row", squeeze=False, width_ratios=widths)
    found = {value: number for value in values if (number := as_number(value)) is not None}
    numbers = dict(sorted(found.items(), key=lambda item: item[1]))
    for row, series in zip(grid, panels, strict=True):
        _draw(row[0], series, numbers, joined=True)
        row[0].set_ylabel(_score_label(series))
        if names:
            _draw(row[1], series, {name: float(place) for place, name in enumerate(names)})
            row[1].spines["left"].set_visible(False)
            row[1].tick_params(axis="y", length=0)
    _number_axis(grid[-1][0], numbers)
    grid[-1][0].set_xlabel(varied)
    if names:
        grid[-1][1].set_xticks(range(len(names)), [textwrap.fill(name, 9) for name in names])
        grid[-1][1].set_xlim(-0.5, len(names) - 0.5)
    _legend(figure, panels, joined=True)
    return figure


def _number_axis(axes: Axes, numbers: Mapping[str, float]) -> None:
    """Logarithmic where that keeps numbers further apart; ticks at the numbers themselves where they can be read."""
    values = np.unique(list(numbers.values()))
    gap, logarithmic = _closest(values), False
    if values[0] > 0 and _closest(np.log(values)) > gap + _SAME_GAP:
        gap, logarithmic = _closest(np.log(values)), True
    axes.set_xscale("log" if logarithmic else "linear")
    axes.autoscale_view()
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    if gap >= _READABLE_GAP:
        axes.set_xticks(list(numbers.values()), list(numbers))


def _closest(values: NDArray[np.float64]) -> float:
    """The smallest gap between sorted numbers, of what they span."""
    return float(np.diff(values).min() / (values[-1] - values[0]))


def _against_names(panels: Sequence[Sequence[Series]], values: Sequence[str], varied: str) -> Figure:
    """A panel beside the other, a name a line."""
    labels = [textwrap.fill(value, _NAME_WIDTH) for value in values]
    most = max(len(series) for series in panels)
    heights = [max(0.22, 0.13 * (label.count("\n") + 1), 0.03 + 0.09 * most) for label in labels]
    figure = Figure((WIDTH, max(1.0, sum(heights)) + 0.9), layout="constrained")
    (grid,) = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axes, series in zip(grid, panels, strict=True):
        _draw(axes, series, {value: float(place) for place, value in enumerate(values)}, downwards=True)
        axes.grid(axis="y", color="0.85", linewidth=0.5)
        axes.set_xlabel(_score_label(series))
    grid[0].set_yticks(range(len(values)), labels)
    grid[0].set_ylim(len(values) - 0.5, -0.5)
    grid[0].set_ylabel(varied)
    _legend(figure, panels)
    return figure


def _draw(
    axes: Axes, series: Sequence[Series], places: Mapping[str, float], joined: bool = False, downwards: bool = False
) -> None:
    """Some series at the places of their values, across or downwards; what has one value stands side by side."""
    for turn, own in enumerate(series):
        points = sorted((p for p in own.points if p.value in places), key=lambda point: places[point.value])
        where = np.array([places[point.value] for point in points])
        means = np.array([point.score.mean for point in points])
        bars = np.array([point.score.deviation or np.nan for point in points])
        seeds = np.array([(places[p.value], run) for p in points for run in p.runs if len(p.runs) > 1]).reshape(-1, 2)
        aside = _APART / 72 * (turn - (len(series) - 1) / 2)
        inches = axes.figure.dpi_scale_trans
        side = ScaledTranslation(*((0.0, -aside, inches) if downwards else (aside, 0.0, inches)))
        line = _line(own) if joined and len(set(where)) == len(where) else "none"
        look: dict[str, Any] = {**_look(own), "linestyle": line, "transform": axes.transData + side}
        if downwards:
            axes.errorbar(means, where, xerr=bars, **look)
            axes.plot(seeds[:, 1], seeds[:, 0], transform=look["transform"], **_DOT)
        else:
            axes.errorbar(where, means, yerr=bars, **look)
            axes.plot(seeds[:, 0], seeds[:, 1], transform=look["transform"], **_DOT)
        ends = [np.stack([where, means + sign * np.nan_to_num(bars)], axis=-1) for sign in (-1, 1)]
        axes.update_datalim(
            np.concatenate([seeds, *ends])[:, :: -1 if downwards else 1]
        )  # what is moved does not count
        axes.autoscale_view()


def _look(series: Series) -> dict[str, Any]:
    colour = COLOURS[series.number % len(COLOURS)]
    marker = MARKERS[series.number % len(MARKERS)]
    filled = "white" if series.paper else colour
    return {"color": colour, "marker": marker, "markerfacecolor": filled, "markersize": 5, **_BAR}


def _line(series: Series) -> Any:
    return _PAPERS_DASHES if series.paper else DASHES[series.number % len(DASHES)]


def _score_label(series: Sequence[Series]) -> str:
    return f"{'paper, ' * all(own.paper for own in series)}dev (Spearman x 100)"


def _legend(figure: Figure, panels: Sequence[Sequence[Series]], joined: bool = False) -> None:
    shown = [series for panel in panels for series in panel]
    handles = [
        Line2D([], [], label=own.label, linestyle=_line(own) if joined else "none", **_look(own)) for own in shown
    ]
    if len(shown) > 1:
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
