"""The alignment-uniformity plane: what is drawn where."""

import numpy as np
import pytest

from simcse_pl.reports.figures.alignment_uniformity import encoder_plane, run_plane
from simcse_pl.results.evaluation_results import read


def shown_texts(figure):
    return " ".join(" ".join(text.get_text().split()) for text in figure.axes[0].texts)


def test_an_encoder_is_a_point_with_its_average_as_colour_and_in_brackets(make_result):
    figure = encoder_plane([make_result("first", seed=1), make_result("second", seed=3)])
    axes, bar = figure.axes
    points = [tuple(collection.get_offsets()[0]) for collection in axes.collections]
    assert points == [pytest.approx((-2.5 + 0.123456789012 * s, 0.1 + 0.05 * s)) for s in (1, 3)]
    assert shown_texts(figure) == "first (60.0) second (62.0)"
    colours = [tuple(collection.get_facecolor()[0]) for collection in axes.collections]
    assert colours[0] == pytest.approx((0.267, 0.005, 0.329, 1), abs=0.001)  # viridis' ends
    assert colours[1] == pytest.approx((0.993, 0.906, 0.144, 1), abs=0.001)
    assert "uniformity" in axes.get_xlabel()
    assert "alignment" in axes.get_ylabel()
    assert bar.get_ylabel() == "average of 7 STS tasks (Spearman x 100)"


def test_the_average_is_over_the_tasks_that_all_have_and_an_encoder_without_is_hollow(make_result):
    results = [
        make_result("few", sts=("STS12", "STS13", "STS-B")),
        make_result("all", seed=1),
        make_result("none", seed=2, sts=()),
        make_result("no geometry", seed=3, geometry=None, sts=("STS12",)),
    ]
    figure = encoder_plane(results, "mean")
    # fmean(50, 53, 65) and 0.12 for the aggregation
    assert shown_texts(figure) == "few (56.1) all (57.1) none"
    assert figure.axes[1].get_ylabel() == "average of 3 STS tasks (Spearman x 100)"
    assert len(figure.axes[0].collections[2].get_facecolor()) == 0


def test_one_encoder_alone_and_one_without_any_scores_are_drawn(make_result):
    assert len(encoder_plane([make_result("one", sts=("STS-B",))]).axes) == 2
    assert len(encoder_plane([make_result("one", sts=())]).axes) == 1


def test_no_geometry_is_no_plane(make_result):
    assert encoder_plane([make_result(geometry=None), make_result("b", geometry={"alignment": 0.3})]) is None
    assert encoder_plane([]) is None
    assert run_plane([]) is None


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
    assert shown_texts(figure).split() == ["step", "12"]
    assert bar.get_ylabel() == "dev (Spearman x 100)"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend[0].endswith("/one")
    assert legend[1:] == ["start", "end"]


def test_runs_differ_in_line_and_marker(write_run):
    figure = run_plane([read(write_run("one")), read(write_run("two", steps=(0, 6, 10)))])
    first, second = figure.axes[0].lines
    assert first.get_linestyle() != second.get_linestyle()
    keys = figure.legends[0].legend_handles
    assert keys[0].get_marker() != keys[1].get_marker()
    assert shown_texts(figure).split() == ["step", "12", "step", "10"]


def test_a_long_run_has_few_markers_and_one_of_one_validation_is_a_point(write_run):
    long = run_plane([read(write_run("long", steps=range(0, 2000, 10)))])
    assert len(long.axes[0].collections) == 17
    assert len(run_plane([read(write_run("short", steps=(0,)))]).axes[0].collections) == 1


def test_a_run_without_spearman_has_no_colours(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,val/alignment,val/uniformity\n0,0.3,-1.5\n4,0.2,-1.6\n")
    assert len(run_plane([read(tmp_path)]).axes) == 1
