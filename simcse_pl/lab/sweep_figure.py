"""The figure of a sweep: scores on dev, with published ones in a panel beside them."""

import textwrap
from collections.abc import Mapping

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simcse_pl.lab.published import Ablation
from simcse_pl.lab.seed_groups import BEFORE, CONFIDENCE, Sweep
from simcse_pl.lab.style import COLOURS, LEGEND_WIDTH, MARKERS, STYLE, WIDTH
from simcse_pl.utils.text import as_number

_TITLE_WIDTH, _LABEL_WIDTH = 85, 50  # characters of a line
_OUTLIER = 5  # times the median difference, or 1 point; other differences cannot be read beside a larger one


@matplotlib.rc_context(STYLE)
def sweep_figure(sweep: Sweep) -> Figure | None:
    """Draw scores on dev by the varied option: means, error bars of one standard deviation, and a dot per seed.

    The paper's numbers are in a second panel. A line is the score before training, if it is that of all runs. Of
    methods, the differences from SimCSE are shown with their t-intervals, and the published differences beside them.
    Return None if no run has a score.
    """
    if not sweep.groups["dev n"].any():
        return None
    if sweep.compares_methods and (figure := _of_methods(sweep)):
        return figure
    panels, paper = {f"dev: {sweep.dev_set} ({sweep.score_name})": _measured(sweep)}, sweep.paper
    if paper and sweep.has_rows and sweep.comparable and len(points := _papers(sweep, paper)):
        panels[f"paper, dev: STS-B ({sweep.score_name})"] = points
    starts = sweep.runs[BEFORE[0]].dropna()
    start = starts.iloc[0] if starts.round(sweep.decimals()).nunique() == 1 else None
    return _panels(panels, sweep.compared, "bars: standard deviation", start)


def _measured(sweep: Sweep) -> pd.DataFrame:
    """Return our points: names are rows, or values of the option with most values; the other options are series."""
    scores = sweep.groups.assign(name=sweep.groups["row" if sweep.has_rows else "label"])
    others = ["column", *sweep.options]
    if sweep.options and not sweep.has_rows:
        axis = max(sweep.options, key=lambda option: scores[option].nunique())
        others.remove(axis)
        scores["name"] = axis + "=" + scores[axis]
    seeds = sweep.runs.dropna(subset="dev").groupby(sweep.keys)["dev"].agg(list).rename("seeds").reset_index()
    scores = scores.merge(seeds, on=sweep.keys)  # without groups that have no score
    scores["series"] = [
        ", ".join(["measured", *(f"{n}={v}".removeprefix("column=") for n, v in values.items() if v)])
        for values in scores[[name for name in others if scores[name].nunique() > 1]].to_dict("records")
    ]
    return scores.rename(columns={"dev": "mean", "dev std": "error"})


def _papers(sweep: Sweep, paper: Ablation) -> pd.DataFrame:
    """Return the paper's points of our rows in the columns of the sweep, or in all columns if the sweep names none."""
    return pd.DataFrame(
        {"name": row, "series": "paper" if column == "dev" else f"paper, {column}", "mean": figures[column]}
        for column in sweep.columns or paper.settings or ("dev",)
        for row, figures in paper.rows.items()
        if column in figures and (sweep.groups["row"] == row).any()
    )


def _of_methods(sweep: Sweep) -> Figure | None:
    """Draw differences from SimCSE with their t-intervals, and published ones beside them; None without any."""
    drawn = {"dev difference": "mean", "dev margin": "error", "dev differences": "seeds", "label": "name"}
    gains = sweep.groups.rename(columns=drawn).dropna(subset="mean").assign(series="measured")
    if gains.empty:
        return None
    panels = {f"difference from SimCSE on dev: {sweep.dev_set}\n{sweep.score_name}, {CONFIDENCE:.0%} interval": gains}
    theirs = gains[["name"]].assign(series="published", mean=gains["published difference"]).dropna()
    if sweep.comparable and theirs["mean"].any():
        panels["published difference,\nSTS average on test"] = theirs
    figure = _panels(panels, sweep.compared)
    sizes = gains["mean"].abs()
    if sizes.max() > _OUTLIER * max(sizes.median(), 1):
        figure.axes[0].set_xscale("symlog", linthresh=1)  # linear from -1 to 1, then logarithmic
        figure.axes[0].xaxis.set_major_formatter("{x:g}")
    for axes in figure.axes:
        axes.axvline(0, color="0.4", linewidth=0.8, zorder=0)
    return figure


def _panels(
    panels: Mapping[str, pd.DataFrame], title: str, bars: str | None = None, start: float | None = None
) -> Figure:
    """Draw panels side by side, by the label of their axis, with a line per name of what is varied.

    `bars` says in the legend what the error bars are. `start` is the score before training.
    """
    drawn = list(panels.values())
    names = list(dict.fromkeys(name for points in drawn for name in points["name"]))
    if all(as_number(name.partition("=")[2]) is not None for name in names):
        names.sort(key=lambda name: float(name.partition("=")[2]))
    series = [points["series"].nunique() for points in drawn]
    lines = textwrap.wrap(title, _TITLE_WIDTH)
    height = max(1.0, len(names) * (0.2 + 0.06 * max(series))) + 0.15 * len(lines) + 0.9
    figure = Figure((WIDTH, height), layout="constrained")
    figure.suptitle("\n".join(lines), fontsize=8)
    (grid,) = figure.subplots(1, len(drawn), sharey=True, squeeze=False)
    for axes, (label, points) in zip(grid, panels.items(), strict=True):
        _draw(axes, points.assign(y=points["name"].map(names.index)))
        axes.grid(axis="y", color="0.85", linewidth=0.5)
        axes.set_xlabel("\n".join(textwrap.fill(line, _LABEL_WIDTH) for line in label.splitlines()))
        axes.set_yticks(range(len(names)), [textwrap.fill(name, LEGEND_WIDTH) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
    if start is not None:
        grid[0].axvline(start, color="0.4", linestyle="--", linewidth=0.8, zorder=0, label="before training")
    has_seeds = any((points["seeds"].map(len) > 1).any() for points in drawn if "seeds" in points)
    if sum(series) > 1 or has_seeds or start is not None:
        shown = {
            label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        legend = bars if has_seeds else None
        texts = [textwrap.fill(label, LEGEND_WIDTH) for label in shown]
        figure.set_figheight(height + 0.1 * max(0, sum(text.count("\n") + 1 for text in texts) - 4))
        figure.legend([*shown.values()], texts, loc="outside lower center", ncols=2, title=legend)
    return figure


def _draw(axes: Axes, points: pd.DataFrame) -> None:
    """Draw the series of a panel, shifted so that they do not cover each other; hollow without the scores of seeds."""
    count, one_seed = points["series"].nunique(), "one seed"  # once in the legend
    for number, (label, series) in enumerate(points.groupby("series", sort=False)):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        y = series["y"] + 0.7 * ((number + 0.5) / count - 0.5)
        face = colour if "seeds" in series else "white"
        bars = axes.errorbar(series["mean"], y, xerr=series.get("error"), label=label, color=colour, fmt=marker)
        bars.lines[0].set(markersize=5, markerfacecolor=face)
        if "seeds" in series:
            dots = series.assign(y=y)[series["seeds"].map(len) > 1].explode("seeds")
            if not dots.empty:
                axes.plot(dots["seeds"], dots["y"] + 0.25 / count, ".", color="0.6", markersize=3, label=one_seed)
                one_seed = ""
