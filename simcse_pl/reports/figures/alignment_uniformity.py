"""The alignment-uniformity plane: encoders as points (the paper's figure 3), training runs as paths (figure 2)."""

import math
import textwrap
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.reports.figures.style import DASHES, LEGEND_WIDTH, MARKERS, STYLE, WIDTH, colour_scale
from simcse_pl.reports.tables.score_tables import shared_tasks, sts_scores
from simcse_pl.results.evaluation_results import Result
from simcse_pl.results.metrics import Aggregation, factor, score_name
from simcse_pl.results.trajectory import TrainingTrajectory

_LABEL_WIDTH = 28  # characters of a line
_LABEL_SIZE = 7  # points
_DISTANCES = (5, 9, 14, 20, 28, 38, 50, 64, 80, 100)  # from a point to its label, in points
_LEADER_FROM = 14  # from this distance on, a line joins the two
_FAR = 1e5  # pixels
_MAX_MARKERS = 17  # per path
_START: dict[str, Any] = {"color": "white", "s": 45, "linewidths": 1.2, "zorder": 4}
_END: dict[str, Any] = {"s": 45, "linewidths": 1.2, "zorder": 3}
_BETWEEN: dict[str, Any] = {"s": 18, "linewidths": 0.4, "zorder": 3}
_ARROWS = (0.2, 0.4, 0.6, 0.8)  # positions along a path, as fractions of its length


@matplotlib.rc_context(STYLE)
def encoder_plane(results: Sequence[Result], aggregation: Aggregation = "all") -> Figure | None:
    """Draw each encoder as a point, coloured by its average STS score (Spearman x 100).

    The average is over the STS tasks that all encoders with STS scores have in common. Encoders
    without STS scores are hollow points.

    Returns:
        The figure; None if no result has alignment and uniformity.
    """
    points = {
        result.label: (g.uniformity, g.alignment)
        for result in results
        if (g := result.geometry) and math.isfinite(g.uniformity) and math.isfinite(g.alignment)
    }
    if not points:
        return None
    scores = sts_scores([result for result in results if result.label in points], aggregation)
    tasks = shared_tasks(scores, STS_TASKS)
    averages = scores[tasks].mean(axis="columns", skipna=False).dropna().to_dict()
    figure, axes = _plane()
    if averages:
        what = f"average of {len(tasks)} STS tasks" if len(tasks) > 1 else tasks[0]
        scale = colour_scale(figure, list(averages.values()), f"{what} (Spearman x 100)")
    for label, (x, y) in points.items():
        colour = scale.to_rgba(np.array([averages[label]]))[0] if label in averages else "none"
        axes.scatter(x, y, s=40, color=colour, edgecolors="black", linewidths=0.7, zorder=3)
    axes.margins(0.3, 0.2)
    texts = [label + (f" ({averages[label]:.1f})" if label in averages else "") for label in points]
    _place_labels(axes, list(points.values()), [textwrap.fill(text, _LABEL_WIDTH) for text in texts])
    return figure


@matplotlib.rc_context(STYLE)
def run_plane(runs: Sequence[TrainingTrajectory]) -> Figure | None:
    """Draw the paths of training runs from start (hollow) to end (large), coloured by the monitored metric on dev.

    Returns:
        The figure; None without runs that have alignment and uniformity.
    """
    runs = [run for run in runs if len(run.points)]
    if not runs:
        return None
    labels = [textwrap.fill(f"{r.label} ({r.points['step'].iloc[-1]} steps)", LEGEND_WIDTH) for r in runs]
    figure, axes = _plane(sum(label.count("\n") + 1 for label in labels) / 2)
    scores = [factor(run.metric) * score for run in runs for score in run.points["score"] if np.isfinite(score)]
    named = " or ".join(dict.fromkeys(score_name(run.metric) for run in runs))
    scale = colour_scale(figure, scores, f"dev ({named})") if scores else None
    keys = []
    for run, label, dashes, marker in zip(runs, labels, cycle(DASHES), cycle(MARKERS)):
        path = _path(run)
        last = len(path) - 1
        axes.plot(*path.T, color="0.35", linestyle=dashes, linewidth=1, zorder=2)
        for row in np.unique(np.linspace(0, last, _MAX_MARKERS).round().astype(int)):
            score = factor(run.metric) * run.points["score"].iloc[row]
            colour = scale.to_rgba(np.array([score]))[0] if scale and np.isfinite(score) else "0.6"
            look = _START if row == 0 else _END if row == last else _BETWEEN
            axes.scatter(*path[row], marker=marker, edgecolors="black", **{"color": colour, **look})
        key = {"linestyle": dashes, "linewidth": 1, "marker": marker, "markersize": 4, "label": label}
        keys.append(Line2D([], [], color="0.35", **key))
    axes.margins(0.12)
    axes.autoscale_view()  # the arrows depend on the limits
    for run in runs:
        _arrows(axes, _path(run))
    for name, colour in (("start", "white"), ("end", "0.6")):
        key = {"marker": "o", "markersize": 6.5, "markeredgecolor": "black", "markeredgewidth": 1.2, "label": name}
        keys.append(Line2D([], [], color="none", markerfacecolor=colour, **key))
    figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure


def _plane(legend_lines: float = 0) -> tuple[Figure, Axes]:
    figure = Figure((WIDTH, 0.72 * WIDTH + 0.15 * legend_lines), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel("uniformity (lower is better)")
    axes.set_ylabel("alignment (lower is better)")
    return figure, axes


def _place_labels(axes: Axes, points: Sequence[tuple[float, float]], labels: Sequence[str]) -> None:
    """Write each label at the nearest position that covers no point, no earlier label and no edge of the axes."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # the layout determines where the axes are
    renderer = FigureCanvasAgg(figure).get_renderer()
    pixels = figure.dpi / 72  # per point
    centres = axes.transData.transform(points)
    x0, y0, x1, y1 = axes.get_window_extent(renderer).extents
    edges = [(-_FAR, -_FAR, x0, _FAR), (x1, -_FAR, _FAR, _FAR), (-_FAR, -_FAR, _FAR, y0), (-_FAR, y1, _FAR, _FAR)]
    taken = [Bbox.from_extents(*edge) for edge in edges] + [Bbox([c - 4 * pixels, c + 4 * pixels]) for c in centres]
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    leader = {"arrowstyle": "-", "linewidth": 0.5, "color": "0.4", "shrinkA": 0, "shrinkB": 3, "relpos": (0.5, 0.5)}
    for point, centre, label in zip(points, centres, labels, strict=True):
        text = axes.annotate(
            label,
            point,
            xytext=(0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=_LABEL_SIZE,
            arrowprops=leader,
        )
        half = np.array(Text.get_window_extent(text, renderer).size) / 2 + pixels
        offsets = [(d, (d * pixels + half) * direction) for d in _DISTANCES for direction in directions]
        boxes = [Bbox([centre + offset - half, centre + offset + half]) for _, offset in offsets]
        best = min(range(len(boxes)), key=lambda k: boxes[k].count_overlaps(taken))  # the first of equals
        distance, offset = offsets[best]
        taken.append(boxes[best])
        text.set_position(tuple(offset / pixels))
        text.set_in_layout(False)
        assert text.arrow_patch is not None
        text.arrow_patch.set_visible(distance >= _LEADER_FROM)


def _path(run: TrainingTrajectory) -> NDArray[np.float64]:
    path: NDArray[np.float64] = run.points[["uniformity", "alignment"]].to_numpy(float)
    return path


def _arrows(axes: Axes, path: NDArray[np.float64]) -> None:
    """Draw arrowheads along a path, evenly spaced on the page."""
    seen = axes.transAxes.inverted().transform(axes.transData.transform(path))
    lengths = np.concatenate([[0], np.hypot(*np.diff(seen, axis=0).T).cumsum()])
    if lengths[-1] == 0:
        return
    head = {"arrowstyle": "-|>,head_width=0.25,head_length=0.5", "color": "0.2", "linewidth": 0, "shrinkA": 0}
    for fraction in _ARROWS:
        tail, tip = zip(
            *(np.interp(np.array([fraction - 0.01, fraction]) * lengths[-1], lengths, column) for column in path.T),
            strict=True,
        )
        axes.annotate("", tip, xytext=tail, arrowprops=head | {"shrinkB": 0}, zorder=5).set_in_layout(False)
