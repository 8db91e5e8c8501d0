"""The curves of training runs over steps. A run draws its own at its end."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simcse_pl.lab.read_runs import Run
from simcse_pl.lab.style import STYLE, figure_of
from simcse_pl.results import TrainingRun, factor, heading, logged, score_name
from simcse_pl.run_folder import CURVES_FIGURE, CURVES_FILE, run_label

_FEW = 30  # points, which have markers


@matplotlib.rc_context(STYLE)
def curves_figure(runs: Sequence[Run]) -> Figure | None:
    """Draw the loss, the metric that chooses the checkpoint, alignment and uniformity, as far as they were logged.

    The runs that have finished share the panels, one per curve. A ring marks the checkpoint that was saved. Return None
    without curves.
    """
    panels = {"train/loss": "training loss", "val/loss": "validation loss"}
    runs = [run for run in runs if run.results]
    results = [run.results for run in runs if run.results]
    panels |= {logged(run.monitor): f"dev ({score_name(run.monitor, run.mode)})" for run in results}
    panels |= {logged(name): f"dev ({heading(name)}, lower is better)" for name in ("alignment", "uniformity")}
    curves = [run.curves.set_index("step").replace([np.inf, -np.inf], np.nan) for run in runs]
    drawn = [name for name in panels if any(name in rows and rows[name].notna().any() for rows in curves)]
    if not drawn:
        return None
    columns = min(len(drawn), 2)
    rows = math.ceil(len(drawn) / columns)
    figure, looks = figure_of([run.label for run in runs], 0.33 * rows, more=1)
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False).flatten()
    for axes, name in zip(grid, drawn, strict=False):
        axes.set_title(panels[name], loc="left")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
        for curve, run, look in zip(curves, results, looks, strict=True):
            points = factor(name.partition("/")[2]) * curve.reindex(columns=[name])[name].dropna()
            marker = {"marker": look["marker"] if len(points) < _FEW else ""}
            axes.plot(points.index, points, linewidth=1, markersize=3, **look | marker)
            if name == logged(run.monitor):
                saved = points[points.index == run.best_step]
                axes.plot(
                    saved.index, saved, "o", markersize=8, markerfacecolor="none", color=look["color"], clip_on=False
                )
    for axes in grid[len(drawn) :]:
        axes.remove()
    for axes in grid[max(0, len(drawn) - columns) : len(drawn)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("step")
    handles, _ = grid[len(drawn) - 1].get_legend_handles_labels()
    figure.legend(handles=handles, loc="outside lower center", ncols=2, title="ring: the checkpoint that was saved")
    return figure


def save_curves(folder: Path, run: TrainingRun) -> None:
    """Draw the curves of a run that has finished into its folder, if it has logged any."""
    if (folder / CURVES_FILE).is_file() and (figure := curves_figure([Run(run_label(folder), folder, run)])):
        with matplotlib.rc_context(STYLE):
            figure.savefig(folder / CURVES_FIGURE)
