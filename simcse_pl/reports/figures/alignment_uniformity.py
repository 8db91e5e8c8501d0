"""The alignment-uniformity plane: encoders as points (the paper's figure 3), training runs as paths (figure 2)."""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.reports.figures.style import DASHES, LEGEND_WIDTH, MARKERS, STYLE, WIDTH
from simcse_pl.reports.tables.score_tables import shared_tasks, sts_scores
from simcse_pl.results.evaluation_results import Result
from simcse_pl.results.metrics import Aggregation, factor, score_name
from simcse_pl.results.trajectory import TrainingTrajectory

_MAX_MARKERS = 17  # per path


def encoder_plane(results: Sequence[Result], aggregation: Aggregation = "all") -> Figure | None:
    """Draw each encoder as a point, coloured by its average STS score (Spearman x 100).

    The average is over the STS tasks that all encoders with STS scores have in common. Encoders
    without STS scores are hollow points.

    Returns:
        The figure; None if no result has alignment and uniformity.
    """
    measured = {result.label: result.geometry for result in results if result.geometry}
    planes = pd.DataFrame(
        {label: {"uniformity": g.uniformity, "alignment": g.alignment} for label, g in measured.items()}
    )
    points = planes.T.dropna()
    if points.empty:
        return None
    scores = sts_scores([result for result in results if result.label in points.index], aggregation)
    tasks = shared_tasks(scores, STS_TASKS)
    points["score"] = scores[tasks].mean(axis="columns", skipna=False)
    texts = [label + ("" if np.isnan(score) else f" ({score:.1f})") for label, score in points["score"].items()]
    paths = {text: points.iloc[[place]] for place, text in enumerate(texts)}
    what = f"average of {len(tasks)} STS tasks" if len(tasks) > 1 else "".join(tasks)
    return _plane(paths, f"{what} (Spearman x 100)")


def run_plane(runs: Sequence[TrainingTrajectory]) -> Figure | None:
    """Draw the paths of training runs from start (hollow) to end (large), coloured by the monitored metric on dev.

    Returns:
        The figure; None without runs that have alignment and uniformity.
    """
    runs = [run for run in runs if len(run.points)]
    if not runs:
        return None
    paths = {
        f"{run.label} ({run.points['step'].iloc[-1]} steps)": run.points.assign(
            score=factor(run.metric) * run.points["score"]
        )
        for run in runs
    }
    named = " or ".join(dict.fromkeys(score_name(run.metric) for run in runs))
    return _plane(paths, f"dev ({named})", legend="hollow: start of training; large: end")


@matplotlib.rc_context(STYLE)
def _plane(paths: Mapping[str, pd.DataFrame], scale: str, legend: str | None = None) -> Figure:
    """Draw paths with the columns uniformity, alignment and score; a path may be a point."""
    labels = [textwrap.fill(label, LEGEND_WIDTH) for label in paths]
    lines = sum(label.count("\n") + 1 for label in labels) / 2 + bool(legend)
    figure = Figure((WIDTH, 0.72 * WIDTH + 0.15 * lines), layout="constrained")
    axes = figure.add_subplot(xlabel="uniformity (lower is better)", ylabel="alignment (lower is better)")
    scores = pd.concat([path["score"] for path in paths.values()]).dropna()
    margin = 1.0 if len(scores) and scores.max() - scores.min() < 1 else 0.0
    norm = Normalize(scores.min() - margin, scores.max() + margin) if len(scores) else Normalize()
    for label, path, dashes, marker in zip(labels, paths.values(), cycle(DASHES), cycle(MARKERS)):
        x, y = path["uniformity"].to_numpy(), path["alignment"].to_numpy()
        look: dict[str, Any] = {"marker": marker, "edgecolors": "black"}
        line = dashes if len(path) > 1 else "none"
        axes.plot(x, y, color="0.35", linestyle=line, linewidth=1, marker=marker, markersize=3.5, label=label)
        shown = np.unique(np.linspace(0, len(path) - 1, _MAX_MARKERS).round().astype(int))
        sizes = np.where(shown == len(path) - 1, 45, 18)
        colours = path["score"].to_numpy()[shown]
        axes.scatter(x[shown], y[shown], sizes, colours, norm=norm, plotnonfinite=True, zorder=3, **look)
        if len(path) > 1:
            axes.scatter(x[:1], y[:1], 45, "white", zorder=4, **look)
    axes.margins(0.12)
    if len(scores):
        figure.colorbar(ScalarMappable(norm, "viridis"), ax=axes, label=scale, aspect=30, ticks=MaxNLocator(6))
    figure.legend(loc="outside lower center", ncols=2, title=legend)
    return figure
