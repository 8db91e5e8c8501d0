"""The alignment-uniformity plane, read back from the axes."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from simcse_pl.reports.figures.alignment_uniformity import encoder_plane, run_plane
from simcse_pl.results.evaluation_results import read


def words(texts):
    return [" ".join(text.get_text().split()) for text in texts]


def test_an_encoder_is_a_point_with_its_average_as_colour_and_in_brackets(make_result):
    figure = encoder_plane([make_result("first", seed=1), make_result("second", seed=3)])
    axes, bar = figure.axes
    points = [tuple(collection.get_offsets()[0]) for collection in axes.collections]
    assert points == [pytest.approx((-2.5 + 0.123456789012 * s, 0.1 + 0.05 * s)) for s in (1, 3)]
    assert words(axes.texts) == ["first (60.0)", "second (62.0)"]
    colours = [tuple(collection.get_facecolor()[0]) for collection in axes.collections]
    assert colours[0] == pytest.approx((0.267, 0.005, 0.329, 1), abs=0.001)  # viridis' ends
    assert colours[1] == pytest.approx((0.993, 0.906, 0.144, 1), abs=0.001)
    assert "uniformity" in axes.get_xlabel() and "alignment" in axes.get_ylabel()
    assert bar.get_ylabel() == "average of 7 STS tasks (Spearman x 100)"


def test_the_average_is_over_common_tasks_and_an_encoder_without_scores_is_hollow(make_result):
    results = [
        make_result("few", sts=("STS12", "STS13", "STS-B")),
        make_result("all", seed=1),
        make_result("none", seed=2, sts=()),
        make_result("no geometry", seed=3, geometry=None, sts=("STS12",)),
    ]
    figure = encoder_plane(results, "mean")
    # fmean(50, 53, 65), and 0.12 for the aggregation
    assert words(figure.axes[0].texts) == ["few (56.1)", "all (57.1)", "none"]
    assert figure.axes[1].get_ylabel() == "average of 3 STS tasks (Spearman x 100)"
    assert len(figure.axes[0].collections[2].get_facecolor()) == 0


def test_without_scores_there_is_no_colour_bar_and_without_geometry_no_figure(make_result):
    assert len(encoder_plane([make_result("one", sts=("STS-B",))]).axes) == 2
    assert len(encoder_plane([make_result("one", sts=())]).axes) == 1
    assert encoder_plane([make_result(geometry=None), make_result("b", geometry={"alignment": 0.3})]) is None
    assert run_plane([]) is None


@pytest.mark.parametrize(
    "points",
    [
        [(-3.0, 0.2), (-2.0, 0.4), (-1.0, 0.1)],
        [(-2.0 + 0.02 * k, 0.2 + 0.003 * (k % 3)) for k in range(8)] + [(0.0, 0.5)],
        [(-2.0, 0.2)] * 4 + [(-1.0, 0.3)],
        [(-2.0, 0.2)],
    ],
    ids=["apart", "close", "equal", "one"],
)
def test_labels_cover_neither_each_other_nor_points_and_stay_inside(points, make_result):
    results = [
        make_result(f"an_encoder/with-a-long-name number {k}", geometry={"uniformity": x, "alignment": y})
        for k, (x, y) in enumerate(points)
    ]
    figure = encoder_plane(results)
    axes = figure.axes[0]
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [Text.get_window_extent(text, renderer) for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    x, y = axes.transData.transform(points).T
    for box in boxes:
        assert not ((x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)).any()
        assert axes.bbox.x0 <= box.x0 < box.x1 <= axes.bbox.x1
        assert axes.bbox.y0 <= box.y0 < box.y1 <= axes.bbox.y1


def test_a_run_is_a_line_from_a_hollow_start_to_a_large_end(write_run):
    figure = run_plane([read(write_run("one", steps=(0, 4, 8, 12)))])
    axes, bar = figure.axes
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [-1.5, -1.6, -1.7, -1.8])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.3, 0.29, 0.28, 0.27])
    start, *between, end = axes.collections
    assert len(between) == 2
    assert tuple(start.get_facecolor()[0]) == (1, 1, 1, 1)
    assert tuple(end.get_facecolor()[0]) == pytest.approx((0.993, 0.906, 0.144, 1), abs=0.001)
    assert start.get_sizes() == end.get_sizes() > between[0].get_sizes()
    assert bar.get_ylabel() == "dev (Spearman x 100)"
    label, *rest = words(figure.legends[0].get_texts())
    assert label.endswith("/one (12 steps)") and rest == ["start", "end"]


def test_runs_differ_in_line_and_marker_and_have_a_bounded_number_of_markers(write_run):
    figure = run_plane([read(write_run("one")), read(write_run("two", steps=(0, 6, 10)))])
    first, second = figure.axes[0].lines
    assert first.get_linestyle() != second.get_linestyle()
    keys = figure.legends[0].legend_handles
    assert keys[0].get_marker() != keys[1].get_marker()
    assert len(run_plane([read(write_run("long", steps=range(0, 2000, 10)))]).axes[0].collections) == 17
    assert len(run_plane([read(write_run("short", steps=(0,)))]).axes[0].collections) == 1


def test_a_run_without_spearman_has_no_colours(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,val/alignment,val/uniformity\n0,0.3,-1.5\n4,0.2,-1.6\n")
    assert len(run_plane([read(tmp_path)]).axes) == 1
