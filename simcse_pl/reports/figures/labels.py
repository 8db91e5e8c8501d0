"""Labels in figures: long ones broken into lines, and placed where they cover neither each other nor the data."""

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from numpy.typing import NDArray

Point = tuple[float, float]
Array = NDArray[np.float64]

_JOINTS = re.compile(r"(?<=[/:_+-])")  # where a word may be broken that is longer than a line
_FONT_SIZE = 7
_DIRECTIONS = 2 * np.pi * np.arange(24) / 24
_DISTANCES = np.array([5, 9, 14, 20, 28, 38, 50, 64, 80, 100])  # from a point to its label, in points
_LEADER_FROM = 9  # from this distance on a line joins the two
_MARKER = 4.0  # half the width that is kept free around a point, in points
_PASSES = 8
# What it costs, in points of distance: each square pixel that is covered; a line through a label or another point; a
# label without a line that lies as near to another point as to its own.
_COVERED, _CROSSED, _AMBIGUOUS = 10.0, 300.0, 60.0


def wrapped(label: str, width: int) -> str:
    """A label in lines of at most `width` characters, broken at spaces, and long words at what joins their parts."""
    lines = [""]
    for word in label.split():
        pieces = [word] if len(word) <= width else _JOINTS.split(word)
        pieces = [piece[start : start + width] for piece in pieces for start in range(0, len(piece), width)]
        for place, piece in enumerate(pieces):
            space = " " if place == 0 and lines[-1] else ""
            if len(lines[-1] + space + piece) > width:
                lines.append(piece)
            else:
                lines[-1] += space + piece
    return "\n".join(line for line in lines if line)


def place_labels(axes: Axes, points: Sequence[Point], labels: Sequence[str], avoid: Sequence[Point] = ()) -> None:
    """Write a label beside each point, inside the axes, where it covers no other label and no point.

    Each label in turn takes the cheapest of some places around its point: near, free, and joined to the point by
    a line that crosses no label; then each again, now that all others have a place, until none moves any more.
    The axes must have got their limits before.

    Args:
        axes: where the points are.
        points: in data coordinates, one a label.
        labels: of one or more lines.
        avoid: further points, in data coordinates, that labels leave free.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # settles where the axes are
    renderer = FigureCanvasAgg(figure).get_renderer()
    pixels = figure.dpi / 72  # in a point
    texts = [axes.text(0, 0, label, fontsize=_FONT_SIZE) for label in labels]
    sizes = [np.add(text.get_window_extent(renderer).size, 2 * pixels) for text in texts]
    for text in texts:
        text.remove()
    centres = axes.transData.transform(np.array(points, dtype=float).reshape(-1, 2))
    others = axes.transData.transform(np.array(avoid, dtype=float).reshape(-1, 2))
    markers = np.concatenate([centres, others])
    inside = np.array(axes.get_window_extent(renderer).extents)
    offsets = _choose(centres, np.array(sizes) / 2, _boxes(markers, np.full(2, _MARKER * pixels)), inside, pixels)
    for point, label, (offset, leader) in zip(points, labels, offsets, strict=True):
        line = {"arrowstyle": "-", "linewidth": 0.5, "color": "0.4", "shrinkA": 0, "shrinkB": 3, "relpos": (0.5, 0.5)}
        axes.annotate(
            label,
            point,
            xytext=(offset[0] / pixels, offset[1] / pixels),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=_FONT_SIZE,
            arrowprops=line if leader else None,
        ).set_in_layout(False)


def _choose(centres: Array, halves: Array, markers: Array, inside: Array, pixels: float) -> list[tuple[Array, bool]]:
    """For each label its offset from its point, in pixels, and whether a line joins them.

    Args:
        centres: of the points [n, 2], and `halves` of the labels' sizes [n, 2], in pixels.
        markers: boxes that stay free [m, 4], each as left, bottom, right, top.
        inside: the box that labels stay in.
        pixels: in a point.
    """
    toward = np.stack([np.cos(_DIRECTIONS), np.sin(_DIRECTIONS)], axis=-1)
    distances = np.repeat(_DISTANCES, len(toward))
    leader = distances >= _LEADER_FROM
    toward = np.tile(toward, (len(_DISTANCES), 1))
    boxes, lines, costs, offsets = [], [], [], []
    for i, (centre, half) in enumerate(zip(centres, halves, strict=True)):
        offset = toward * (distances[:, None] * pixels + half)
        box = _boxes(centre + offset, half)
        outside = 4 * half.prod() - _overlap(box, inside[None])[:, 0]
        line = centre + offset[:, None] * np.linspace(0.15, 1, 24)[:, None]
        rest = np.delete(np.arange(len(centres)), i)
        through = _holds(markers[rest, None, None], line).any(axis=(0, 2))
        near = (_gap(box, centres[rest]) < _gap(box, centre[None]) + 3 * pixels).any(axis=1)
        cost = _COVERED * (outside + _overlap(box, markers).sum(axis=1))
        costs.append(distances + cost + _CROSSED * (leader & through) + _AMBIGUOUS * (near & ~leader))
        boxes.append(box)
        offsets.append(offset)
        lines.append(line)
    chosen: list[int | None] = [None] * len(centres)
    for _ in range(_PASSES):
        before = list(chosen)
        for i in range(len(centres)):
            cost = costs[i].copy()
            for j, place in enumerate(chosen):
                if place is None or j == i:
                    continue
                box, line = boxes[j][place], lines[j][place]
                cost += _COVERED * _overlap(boxes[i], box[None])[:, 0]
                cost += _CROSSED * (leader & _holds(box, lines[i]).any(axis=1))
                cost += _CROSSED * (leader[place] & _holds(boxes[i][:, None], line).any(axis=1))
            chosen[i] = int(cost.argmin())
        if chosen == before:
            break
    return [(offsets[i][place], bool(leader[place])) for i, place in enumerate(chosen) if place is not None]


def _boxes(centres: Array, half: Array) -> Array:
    return np.concatenate([centres - half, centres + half], axis=-1)


def _overlap(one: Array, other: Array) -> Array:
    """The area that boxes [n, 4] share with boxes [m, 4], as [n, m]."""
    one, other = one[:, None], other[None]
    sides = np.minimum(one[..., 2:], other[..., 2:]) - np.maximum(one[..., :2], other[..., :2])
    area: Array = sides.clip(min=0).prod(axis=-1)
    return area


def _gap(boxes: Array, spots: Array) -> Array:
    """How far boxes [n, 4] are from spots [m, 2], as [n, m]."""
    sides = np.maximum(boxes[:, None, :2] - spots, spots - boxes[:, None, 2:]).clip(min=0)
    gap: Array = np.linalg.norm(sides, axis=-1)
    return gap


def _holds(box: Array, spots: Array) -> NDArray[np.bool_]:
    """Which spots [..., 2] lie in a box [..., 4]."""
    return np.all((spots >= box[..., :2]) & (spots <= box[..., 2:]), axis=-1)  # type: ignore[no-any-return]
