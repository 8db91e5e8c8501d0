"""The alignment-uniformity plane: encoders in it (the paper's figure 3), and training runs through it (figure 2)."""

from collections.abc import Sequence
from itertools import cycle
from statistics import fmean
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.reports.figures.labels import Point, place_labels, wrapped
from simcse_pl.reports.figures.style import DASHES, LEGEND_WIDTH, MARKERS, STYLE, WIDTH, colour_scale
from simcse_pl.reports.tables.score_tables import shared_tasks, sts_scores
from simcse_pl.results.evaluation_results import Aggregation, Result
from simcse_pl.results.trajectory import TrainingTrajectory

_LABEL_WIDTH = 28  # characters of a line
_MOST_MARKERS = 17  # on a path
_START: dict[str, Any] = {"color": "white", "s": 45, "linewidths": 1.2, "zorder": 4}
_END: dict[str, Any] = {"s": 45, "linewidths": 1.2, "zorder": 3}
_BETWEEN: dict[str, Any] = {"s": 18, "linewidths": 0.4, "zorder": 3}
_ARROWS = (0.2, 0.4, 0.6, 0.8)  # where on a path, as shares of its length


@matplotlib.rc_context(STYLE)
def encoder_plane(results: Sequence[Result], aggregation: Aggregation = "all") -> Figure | None:
    """Figure 3: an encoder a point, its average STS score (Spearman x 100) as colour and in brackets.

    The average is over the STS tasks that all encoders have which have any; an encoder without is a hollow point.

    Args:
        results: of any number of encoders.
        aggregation: of the subsets of STS12 to STS16.

    Returns:
        None where nobody's alignment and uniformity were measured.
    """
    points = {
        result.label: (g.uniformity, g.alignment)
        for result in results
        if (g := result.geometry) and g.uniformity is not None and g.alignment is not None
    }
    if not points:
        return None
    scores = {label: own for label, own in sts_scores(results, aggregation).items() if label in points}
    tasks = shared_tasks(list(scores.values()), STS_TASKS)
    averages = {
        label: fmean(own[task] for task in tasks) for label, own in scores.items() if tasks and own.keys() >= {*tasks}
    }
    figure, axes = _plane()
    if averages:
        what = f"average of {len(tasks)} STS tasks" if len(tasks) > 1 else tasks[0]
        scale = colour_scale(figure, list(averages.values()), f"{what} (Spearman x 100)")
    for label, (x, y) in points.items():
        colour = scale.to_rgba(np.array([averages[label]]))[0] if label in averages else "none"
        axes.scatter(x, y, s=40, color=colour, edgecolors="black", linewidths=0.7, zorder=3)
    axes.margins(0.3, 0.2)
    texts = [label + (f" ({averages[label]:.1f})" if label in averages else "") for label in points]
    place_labels(axes, list(points.values()), [wrapped(text, _LABEL_WIDTH) for text in texts])
    return figure


@matplotlib.rc_context(STYLE)
def run_plane(runs: Sequence[TrainingTrajectory]) -> Figure | None:
    """Figure 2: the paths of training runs, from their start (hollow) to their end (large), dev's Spearman as colour.

    Args:
        runs: any number of them.

    Returns:
        None where there are none.
    """
    if not runs:
        return None
    labels = [wrapped(run.label, LEGEND_WIDTH) for run in runs]
    figure, axes = _plane(sum(label.count("\n") + 1 for label in labels) / 2)
    scores = [100 * score for run in runs for score in run.points["spearman"] if np.isfinite(score)]
    scale = colour_scale(figure, scores, "dev (Spearman x 100)") if scores else None
    keys = []
    for run, label, dashes, marker in zip(runs, labels, cycle(DASHES), cycle(MARKERS)):
        path = _path(run)
        last = len(path) - 1
        axes.plot(*path.T, color="0.35", linestyle=dashes, linewidth=1, zorder=2)
        for row in np.unique(np.linspace(0, last, _MOST_MARKERS).round().astype(int)):
            score = 100 * run.points["spearman"].iloc[row]
            colour = scale.to_rgba(np.array([score]))[0] if scale and np.isfinite(score) else "0.6"
            look = _START if row == 0 else _END if row == last else _BETWEEN
            axes.scatter(*path[row], marker=marker, edgecolors="black", **{"color": colour, **look})
        keys.append(Line2D([], [], color="0.35", linestyle=dashes, linewidth=1, marker=marker, markersize=4))
        keys[-1].set_label(label)
    axes.margins(0.12)
    axes.autoscale_view()  # now, since what follows asks where things are
    for run in runs:
        _arrows(axes, _path(run))
    for name, colour in (("start", "white"), ("end", "0.6")):
        keys.append(Line2D([], [], color="none", marker="o", label=name, markerfacecolor=colour))
        keys[-1].set(markersize=6.5, markeredgecolor="black", markeredgewidth=1.2)
    figure.legend(handles=keys, loc="outside lower center", ncols=2)
    ends = [tuple(_path(run)[-1]) for run in runs]
    steps = [f"step {run.points['step'].iloc[-1]}" for run in runs]
    place_labels(axes, ends, steps, [(x, y) for run in runs for x, y in _path(run)])
    return figure


def _plane(legend_lines: float = 0) -> tuple[Figure, Axes]:
    figure = Figure((WIDTH, 0.72 * WIDTH + 0.15 * legend_lines), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel("uniformity (lower is better)")
    axes.set_ylabel("alignment (lower is better)")
    return figure, axes


def _path(run: TrainingTrajectory) -> NDArray[np.float64]:
    path: NDArray[np.float64] = run.points[["uniformity", "alignment"]].to_numpy(float)
    return path


def _arrows(axes: Axes, path: NDArray[np.float64]) -> None:
    """Arrowheads along a path, as far from each other as the eye sees it."""
    seen = axes.transAxes.inverted().transform(axes.transData.transform(path))
    lengths = np.concatenate([[0], np.hypot(*np.diff(seen, axis=0).T).cumsum()])
    if lengths[-1] == 0:
        return
    head = {"arrowstyle": "-|>,head_width=0.25,head_length=0.5", "color": "0.2", "linewidth": 0, "shrinkA": 0}

    def along(share: float) -> Point:
        x, y = (float(np.interp(share * lengths[-1], lengths, column)) for column in path.T)
        return x, y

    for share in _ARROWS:
        arrow = axes.annotate("", along(share), xytext=along(share - 0.01), arrowprops=head | {"shrinkB": 0}, zorder=5)
        arrow.set_in_layout(False)
