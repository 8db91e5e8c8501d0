"""The alignment-uniformity plane, read back from the axes."""

import numpy as np
import pytest

from simcse_pl.reports.figures.encoders import encoder_plane, run_plane
from simcse_pl.results.evaluation_results import read


def legend(figure):
    return [" ".join(text.get_text().split()) for text in figure.legends[0].get_texts()]


def test_an_encoder_is_a_point_with_its_average_as_colour_and_in_brackets(make_result):
    figure = encoder_plane([make_result("first", seed=1), make_result("second", seed=3)])
    axes, bar = figure.axes
    points = [tuple(collection.get_offsets()[0]) for collection in axes.collections]
    assert points == [pytest.approx((-2.5 + 0.123456789012 * s, 0.1 + 0.05 * s)) for s in (1, 3)]
    assert legend(figure) == ["first (60.0)", "second (62.0)"]
    assert [collection.get_array().tolist() for collection in axes.collections] == [[pytest.approx(60)], [62]]
    assert "uniformity" in axes.get_xlabel() and "alignment" in axes.get_ylabel()
    assert bar.get_ylabel() == "average of 7 STS tasks (Spearman x 100)"


def test_the_average_is_over_common_tasks_and_an_encoder_may_have_no_scores(make_result):
    results = [
        make_result("few", sts=("STS12", "STS13", "STS-B")),
        make_result("all", seed=1),
        make_result("none", seed=2, sts=()),
        make_result("no geometry", seed=3, geometry=None, sts=("STS12",)),
    ]
    figure = encoder_plane(results, "mean")
    # fmean(50, 53, 65), and 0.12 for the aggregation
    assert legend(figure) == ["few (56.1)", "all (57.1)", "none"]
    assert figure.axes[1].get_ylabel() == "average of 3 STS tasks (Spearman x 100)"
    assert len(encoder_plane([make_result("one", sts=())]).axes) == 1  # no colour bar
    assert encoder_plane([make_result(geometry=None), make_result("b", geometry={"alignment": 0.3})]) is None


def test_a_run_is_a_line_from_a_hollow_start_to_a_large_end(write_run):
    figure = run_plane([read(write_run("one", steps=(0, 4, 8, 12)))])
    axes, bar = figure.axes
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [-1.5, -1.6, -1.7, -1.8])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.3, 0.29, 0.28, 0.27])
    path, start = axes.collections
    np.testing.assert_allclose(path.get_array(), [70, 71, 72, 73])
    assert path.get_sizes().tolist() == [18, 18, 18, 45]
    assert tuple(start.get_facecolor()[0]) == (1, 1, 1, 1)
    assert bar.get_ylabel() == "dev (Spearman x 100)"
    assert legend(figure)[0].endswith("/one (12 steps)")


def test_a_long_run_has_a_bounded_number_of_markers_and_no_run_is_no_figure(write_run, tmp_path):
    path, _ = run_plane([read(write_run("long", steps=range(0, 2000, 10)))]).axes[0].collections
    assert len(path.get_offsets()) == 17
    (tmp_path / "metrics.csv").write_text("step,val/alignment,val/uniformity\n0,0.3,-1.5\n4,0.2,-1.6\n")
    assert len(run_plane([read(tmp_path)]).axes) == 1  # no scores
    assert run_plane([]) is None
