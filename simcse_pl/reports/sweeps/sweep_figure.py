"""The figure of a sweep: scores on dev by the varied option, with published ones in a panel beside them."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simcse_pl.reports.figures.style import COLOURS, MARKERS, STYLE, WIDTH
from simcse_pl.reports.sweeps.paired import CONFIDENCE, differences
from simcse_pl.reports.sweeps.seed_groups import SeedGroups
from simcse_pl.reports.sweeps.sweep_tables import published_differences
from simcse_pl.utils.validation import as_number

_NAME_WIDTH = 30  # characters of a line
_OUTLIER = 5  # times the median difference, or 1 point; other differences cannot be read beside a larger one
_COLUMNS = ["name", "series", "mean", "error", "seeds"]


@matplotlib.rc_context(STYLE)
def sweep_figure(groups: SeedGroups) -> Figure | None:
    """Draw scores on dev by the varied option: means, error bars of one standard deviation, and a dot per seed.

    The paper's numbers are in a second panel. Of methods, the differences from SimCSE are shown with their
    t-intervals, and the published differences beside them.

    Returns:
        The figure; None if no run has a score.
    """
    score = groups.score_name
    if not groups.groups["dev n"].any():
        return None
    if groups.compares_methods and len(points := _differences(groups)):
        return _of_methods(groups, points)
    panels = {f"dev ({score})": _measured(groups)}
    if len(theirs := _papers(groups)):
        panels[f"paper, dev ({score})"] = theirs
    return _panels(panels, groups.paper.varied if groups.paper and groups.has_rows else "")


def _measured(groups: SeedGroups) -> pd.DataFrame:
    """Return our points: names are rows, or values of the option with most values; the other options are series."""
    scores = groups.groups.assign(name=groups.groups["row" if groups.has_rows else "label"])
    others = ["column", *groups.options]
    if groups.options and not groups.has_rows:
        axis = max(groups.options, key=lambda option: scores[option].nunique())
        others.remove(axis)
        scores["name"] = axis + "=" + scores[axis]
    seeds = groups.runs.dropna(subset="dev").groupby(groups.keys)["dev"].agg(list).rename("seeds").reset_index()
    scores = scores.merge(seeds, on=groups.keys)  # without groups that did not run
    scores["series"] = [
        ", ".join(["measured", *(f"{n}={v}".removeprefix("column=") for n, v in values.items() if v)])
        for values in scores[[name for name in others if scores[name].nunique() > 1]].to_dict("records")
    ]
    return scores.rename(columns={"dev": "mean", "dev std": "error"})[_COLUMNS]


def _papers(groups: SeedGroups) -> pd.DataFrame:
    """Return the paper's points in the columns of the sweep, or in all columns if the sweep names none."""
    paper = groups.paper if groups.has_rows and groups.comparable else None
    columns = (groups.columns or paper.settings or ("dev",)) if paper else ()
    points: list[Any] = [
        (row, "paper" if column == "dev" else f"paper, {column}", figures[column], np.nan, [])
        for column in columns
        for row, figures in (paper.rows.items() if paper else ())
        if column in figures
    ]
    return pd.DataFrame(points, columns=_COLUMNS)


def _differences(groups: SeedGroups) -> pd.DataFrame:
    gains = zip(groups.groups["label"], differences(groups, "dev"), strict=True)
    points = [(name, "measured", gain.mean, gain.margin, gain.by_seed.tolist()) for name, gain in gains if gain.count]
    return pd.DataFrame(points, columns=_COLUMNS)


def _of_methods(groups: SeedGroups, points: pd.DataFrame) -> Figure:
    panels = {f"difference from SimCSE on dev,\n{groups.score_name}, {CONFIDENCE:.0%} interval": points}
    scores = groups.groups.assign(series="published", error=np.nan, seeds=[[]] * len(groups.groups))
    theirs = scores.assign(name=scores["label"], mean=published_differences(groups))
    theirs = theirs[theirs["name"].isin(points["name"])].dropna(subset="mean")[_COLUMNS]
    if groups.comparable and len(theirs):
        panels["published difference,\nSTS average on test"] = theirs
    figure = _panels(panels)
    sizes = points["mean"].abs()
    if sizes.max() > _OUTLIER * max(sizes.median(), 1):
        figure.axes[0].set_xscale("symlog", linthresh=1)  # linear from -1 to 1, then logarithmic
        figure.axes[0].xaxis.set_major_formatter("{x:g}")
    for axes in figure.axes:
        axes.axvline(0, color="0.4", linewidth=0.8, zorder=0)
    return figure


def _panels(panels: Mapping[str, pd.DataFrame], varied: str = "") -> Figure:
    """Draw panels side by side, by the label of their axis, with a line per name of what is varied."""
    drawn = list(panels.values())
    names = list(dict.fromkeys(name for points in reversed(drawn) for name in points["name"]))  # in the paper's order
    if all(as_number(name.partition("=")[2]) is not None for name in names):
        names.sort(key=lambda name: float(name.partition("=")[2]))
    texts = [textwrap.fill(name, _NAME_WIDTH) for name in names]
    most = max(points["series"].nunique() for points in drawn)
    height = sum(max(0.13 * (text.count("\n") + 1), 0.16 + 0.06 * most) for text in texts)
    figure = Figure((WIDTH, max(1.0, height) + 0.9), layout="constrained")
    (grid,) = figure.subplots(1, len(drawn), sharey=True, squeeze=False)
    for axes, (label, points) in zip(grid, panels.items(), strict=True):
        _draw(axes, points, names, hollow=axes is not grid[0])
        axes.grid(axis="y", color="0.85", linewidth=0.5)
        axes.set_xlabel(label)
    grid[0].set_ylabel(varied)
    grid[0].set_yticks(range(len(names)), texts)
    grid[0].set_ylim(len(names) - 0.5, -0.5)
    if sum(points["series"].nunique() for points in drawn) > 1:
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _draw(axes: Axes, points: pd.DataFrame, names: Sequence[str], hollow: bool) -> None:
    """Draw the series of a panel, shifted so that they do not cover each other."""
    count = points["series"].nunique()
    for number, (label, series) in enumerate(points.groupby("series", sort=False)):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        place = series["name"].map(names.index) + 0.7 * ((number + 0.5) / count - 0.5)
        face = "white" if hollow else colour
        look: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "markersize": 5,
            "markerfacecolor": face,
            "linestyle": "none",
        }
        axes.errorbar(series["mean"], place, xerr=series["error"], label=label, **look)
        dots = series.assign(place=place)[series["seeds"].map(len) > 1].explode("seeds")
        axes.plot(dots["seeds"], dots["place"] + 0.25 / count, ".", color="0.6", markersize=3)
