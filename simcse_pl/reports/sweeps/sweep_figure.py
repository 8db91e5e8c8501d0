"""The figure of a sweep: scores on dev against the varied option, with published ones as hollow markers."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from simcse_pl.reports.figures.style import COLOURS, DASHES, MARKERS, STYLE, WIDTH
from simcse_pl.reports.sweeps.paired import CONFIDENCE, difference, published_difference
from simcse_pl.reports.sweeps.seed_groups import METHOD, SeedGroups
from simcse_pl.reports.tables.score_tables import keys_of
from simcse_pl.utils.validation import as_number

_MAX_SERIES = 8  # more would be hard to distinguish
_NAME_WIDTH = 30  # characters of a line
_LEGIBLE = 1 / 3  # our scores and the paper's share an axis if each spans this fraction of it
_READABLE_GAP = 0.05  # between ticks, as a fraction of the axis
_SAME_GAP = 1e-9  # so that rounding does not choose between a linear and a logarithmic axis
_SHIFT = 5.0  # points between series at the same value
_BELOW = 4.5  # points between a mean and the scores of single seeds below it
_OUTLIER = 5  # times the median difference, or 1 point; other differences cannot be read beside a larger one
_COLUMNS = ["value", "mean", "std", "scores"]


@dataclass(frozen=True)
class Series:
    """Points with the same look.

    Args:
        label: text of the legend.
        points: one row per point: `value` of the varied option, `mean` and `std` of the scores on
            dev x 100, and `scores`, the list of the scores of single seeds.
        number: the look, counted separately for our series and the paper's.
        paper: whether the scores are the paper's.
    """

    label: str
    points: pd.DataFrame
    number: int = 0
    paper: bool = False

    @property
    def look(self) -> dict[str, Any]:
        """The options of the markers."""
        colour, marker = COLOURS[self.number % len(COLOURS)], MARKERS[self.number % len(MARKERS)]
        face = "white" if self.paper else colour
        return {"color": colour, "marker": marker, "markerfacecolor": face, "markersize": 5, "linewidth": 1}

    @property
    def dashes(self) -> Any:
        """The style of the line that joins the points."""
        return (0, (1, 2)) if self.paper else DASHES[self.number % len(DASHES)]


@matplotlib.rc_context(STYLE)
def sweep_figure(groups: SeedGroups) -> Figure | None:
    """Draw scores on dev by the varied option: means, error bars of one standard deviation, and a dot per seed.

    Values that are numbers are on one axis, which is logarithmic if that separates them better.
    Values that are names are to the right of it, or on a vertical axis if no value is a number. The
    paper's points are in a second panel if our scores or the paper's would be illegible in one. If
    only the seed varies, each seed is a point, and a line is the mean. Of methods, the differences
    from SimCSE are shown with their t-intervals, and the published differences beside them.

    Returns:
        The figure; None if no run has a score.
    """
    if not groups.over_seeds("dev")["count"].any():
        return None
    if len(groups.groups) == 1 and not groups.has_rows:
        return _seeds(groups)
    if groups.compares_methods and (figure := _differences(groups)):
        return figure
    varied, measured = _measured(groups)
    paper = _papers(groups)
    panels = [measured, paper] if paper and not _legible_together(measured, paper) else [[*measured, *paper]]
    rows = groups.paper.rows if paper and groups.paper else {}
    values = keys_of([rows, *(dict.fromkeys(own.points["value"]) for own in measured)])
    numbers = {as_number(value) for value in values} - {None}
    draw = _against_numbers if len(numbers) > 1 else _against_names
    return draw(panels, values, varied, groups.score_name)


def _measured(groups: SeedGroups) -> tuple[str, list[Series]]:
    """Return the name of the varied option, and our scores.

    The axis shows the rows of the sweep, or else the option with the most numbers as values. Other
    options and columns make series; too many series become one.
    """
    options = {} if groups.has_rows else {n: {group.options[n] for group in groups.groups} for n in groups.options}
    axis = max(options, key=lambda n: sum(as_number(v) is not None for v in options[n]), default=None)
    series: dict[str, list[dict[str, object]]] = {}
    for group, score in zip(groups.groups, groups.over_seeds("dev").to_dict("records"), strict=True):
        if score["count"]:
            other = [group.column] if groups.has_rows and len(groups.columns) > 1 else []
            other += [f"{name}={value}" for name, value in group.options.items() if name != axis]
            value = group.options[axis] if axis else group.row or group.label
            point = {"value": value, **score, "scores": group.runs["dev"].dropna().tolist()}
            series.setdefault(", ".join(["measured", *filter(None, other)]), []).append(point)
    if len(series) > _MAX_SERIES:
        series = {"measured": [point for points in series.values() for point in points]}
    found = [Series(label, pd.DataFrame(points), k) for k, (label, points) in enumerate(series.items())]
    return axis or (groups.paper.varied if groups.paper else ""), found


def _papers(groups: SeedGroups) -> list[Series]:
    """Return the paper's scores in the columns of the sweep, or in all columns if the sweep names none."""
    paper = groups.paper
    if paper is None or not groups.has_rows or not groups.comparable:
        return []
    series = []
    for number, column in enumerate(groups.known_columns or paper.settings or ("dev",)):
        points = [[row, own[column], np.nan, []] for row, own in paper.rows.items() if column in own]
        label = "paper" if column == "dev" else f"paper, {column}"
        series.append(Series(label, pd.DataFrame(points, columns=_COLUMNS), number, paper=True))
    return series


def _seeds(groups: SeedGroups) -> Figure:
    runs, digits = groups.groups[0].runs.dropna(subset="dev"), groups.decimals
    frame = pd.DataFrame({"value": runs["seed"], "mean": runs["dev"], "std": np.nan, "scores": [[]] * len(runs)})
    figure = _against_names([[Series("measured", frame)]], list(runs["seed"].unique()), "seed", groups.score_name)
    if len(runs) > 1:
        axes, mean, std = figure.axes[0], runs["dev"].mean(), runs["dev"].std()
        axes.axvspan(mean - std, mean + std, color="0.9", linewidth=0, zorder=0)
        axes.axvline(mean, color="0.4", linewidth=0.8, linestyle=DASHES[1], zorder=0)
        axes.set_title(f"mean ± standard deviation: {mean:.{digits}f} ± {std:.{digits}f}")
    return figure


def _differences(groups: SeedGroups) -> Figure | None:
    """Draw the differences of methods from SimCSE; None if the sweep has no seed of both."""
    found = {group.label: (difference(groups, group, "dev"), published_difference(group)) for group in groups.groups}
    measured = {label: own for label, (own, _) in found.items() if own.count}
    if not measured:
        return None
    points = [[label, own.mean, own.margin, own.by_seed.tolist()] for label, own in measured.items()]
    theirs = [[label, gain, np.nan, []] for label, (_, gain) in found.items() if label in measured and gain == gain]
    panels = [[Series("measured", pd.DataFrame(points, columns=_COLUMNS))]]
    if theirs and groups.comparable:
        panels.append([Series("published", pd.DataFrame(theirs, columns=_COLUMNS), paper=True)])
    figure = _against_names(panels, [*measured], METHOD, groups.score_name)
    sizes = np.abs([own.mean for own in measured.values()])
    if sizes.max() > _OUTLIER * max(np.median(sizes), 1):
        figure.axes[0].set_xscale("symlog", linthresh=1)  # linear from -1 to 1, then logarithmic
        figure.axes[0].xaxis.set_major_formatter("{x:g}")
        figure.axes[0].autoscale_view()
    labels = [
        f"difference from SimCSE on dev,\n{groups.score_name}, {CONFIDENCE:.0%} interval",
        "published difference,\nSTS average on test",
    ]
    for axes, label in zip(figure.axes, labels[: len(panels)], strict=True):
        axes.axvline(0, color="0.4", linewidth=0.8, zorder=0)
        axes.set_xlabel(label)
    return figure


def _legible_together(*parts: Sequence[Series]) -> bool:
    """Return whether the scores of each part span enough of a common axis."""
    spans = [pd.concat([own.points["mean"] for own in part]).agg(["min", "max"]) for part in parts]
    whole = max(span["max"] for span in spans) - min(span["min"] for span in spans)
    return all(span["max"] - span["min"] >= _LEGIBLE * whole for span in spans)


def _against_numbers(panels: Sequence[Sequence[Series]], values: Sequence[str], varied: str, score: str) -> Figure:
    """Draw panels below each other. Names are in separate axes to the right of the numbers."""
    found = [(value, number) for value in values if (number := as_number(value)) is not None]
    numbers = dict(sorted(found, key=lambda item: item[1]))
    names = {value: float(place) for place, value in enumerate(v for v in values if v not in numbers)}
    figure = Figure((WIDTH, 2.0 * len(panels) + 0.7), layout="constrained")
    widths = [5, *[0.4 + 0.5 * len(names)] * bool(names)]
    grid = figure.subplots(len(panels), len(widths), sharex="col", sharey="row", squeeze=False, width_ratios=widths)
    for row, series in zip(grid, panels, strict=True):
        _draw(row[0], series, numbers, joined=True)
        row[0].set_ylabel(_score_label(series, score))
        if names:
            _draw(row[1], series, names)
            row[1].spines["left"].set_visible(False)
            row[1].tick_params(axis="y", length=0)
    _number_axis(grid[-1][0], numbers)
    grid[-1][0].set_xlabel(varied)
    if names:
        grid[-1][1].set_xticks([*names.values()], [textwrap.fill(name, 9) for name in names])
        grid[-1][1].set_xlim(-0.5, len(names) - 0.5)
    _legend(figure, panels, joined=True)
    return figure


def _number_axis(axes: Axes, numbers: Mapping[str, float]) -> None:
    """Choose a linear or a logarithmic axis, and put ticks at the numbers themselves if they can be read."""
    values = np.unique(list(numbers.values()))
    gap, scale = _closest(values), "linear"
    if values[0] > 0 and _closest(np.log(values)) > gap + _SAME_GAP:
        gap, scale = _closest(np.log(values)), "log"
    axes.set_xscale(scale)
    axes.autoscale_view()
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    if gap >= _READABLE_GAP:
        axes.set_xticks(list(numbers.values()), list(numbers))


def _closest(values: NDArray[np.float64]) -> float:
    """Return the smallest gap between sorted numbers as a fraction of their range."""
    return float(np.diff(values).min() / (values[-1] - values[0]))


def _against_names(panels: Sequence[Sequence[Series]], values: Sequence[str], varied: str, score: str) -> Figure:
    """Draw panels side by side, with one line per name."""
    labels = [textwrap.fill(value, _NAME_WIDTH) for value in values]
    most = max(len(series) for series in panels)
    heights = [max(0.22, 0.13 * (label.count("\n") + 1), 0.03 + 0.09 * most) for label in labels]
    figure = Figure((WIDTH, max(1.0, sum(heights)) + 0.9), layout="constrained")
    (grid,) = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axes, series in zip(grid, panels, strict=True):
        _draw(axes, series, {value: float(place) for place, value in enumerate(values)}, downwards=True)
        axes.grid(axis="y", color="0.85", linewidth=0.5)
        axes.set_xlabel(_score_label(series, score))
    grid[0].set_yticks(range(len(values)), labels)
    grid[0].set_ylim(len(values) - 0.5, -0.5)
    grid[0].set_ylabel(varied)
    _legend(figure, panels)
    return figure


def _draw(
    axes: Axes, series: Sequence[Series], places: Mapping[str, float], joined: bool = False, downwards: bool = False
) -> None:
    """Draw series at the places of their values, across or downwards, shifted so that they do not cover each other."""
    for turn, own in enumerate(series):
        points = own.points.assign(place=own.points["value"].map(places)).dropna(subset="place").sort_values("place")
        seeds = points[points["scores"].map(len) > 1].explode("scores")
        lined = joined and points["place"].is_unique
        look = {**own.look, "linestyle": own.dashes if lined else "none"}
        dot: dict[str, Any] = {"color": "0.6", "marker": ".", "markersize": 3, "linestyle": "none", "zorder": 1}
        place, mean, std = (points[name].to_numpy(float) for name in ("place", "mean", "std"))
        dots = seeds["place"].to_numpy(float), seeds["scores"].to_numpy(float)
        if downwards:
            bars = axes.errorbar(mean, place, xerr=std, **look)
            drawn = axes.plot(*dots[::-1], **dot)
        else:
            bars = axes.errorbar(place, mean, yerr=std, **look)
            drawn = axes.plot(*dots, **dot)
        shift = _SHIFT / 72 * (turn - (len(series) - 1) / 2)
        x, y = (0.0, -shift) if downwards else (shift, 0.0)
        below = _BELOW / 72 * (downwards and len(series) == 1)  # or else a series may be there
        for artists, own_y in ((bars.get_children(), y), (drawn, y - below)):
            for artist in artists:
                artist.set_transform(axes.transData + ScaledTranslation(x, own_y, axes.figure.dpi_scale_trans))


def _score_label(series: Sequence[Series], score: str) -> str:
    return f"{'paper, ' * all(own.paper for own in series)}dev ({score})"


def _legend(figure: Figure, panels: Sequence[Sequence[Series]], joined: bool = False) -> None:
    shown = [series for panel in panels for series in panel]
    keys = [Line2D([], [], label=own.label, linestyle=own.dashes if joined else "none", **own.look) for own in shown]
    if len(shown) > 1:
        figure.legend(handles=keys, loc="outside lower center", ncols=2)
