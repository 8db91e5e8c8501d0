"""The alignment-uniformity plane, read back from the axes."""

import numpy as np
import pytest

from simcse_pl.reports.figures.encoders import encoder_plane, run_plane
from simcse_pl.results.evaluation_results import read


def test_an_encoder_is_a_point_with_its_average_over_common_tasks_as_colour(make_result):
    results = [
        make_result("few", seed=1, sts=("STS12", "STS13", "STS-B")),
        make_result("all", seed=3),
        make_result("none", seed=2, sts=()),
        make_result("no geometry", geometry=None),
    ]
    drawn = encoder_plane(results).axes[0].collections
    points = {tuple(point.get_offsets()[0].tolist()): point.get_array() for point in drawn}
    assert [*points] == [pytest.approx((-2.5 + 0.123456789012 * s, 0.1 + 0.05 * s)) for s in (1, 3, 2)]
    few, all_, none = points.values()
    assert few.tolist() == pytest.approx([57]) and all_.tolist() == pytest.approx([59])  # fmean(51, 54, 66)
    assert none.mask.all()
    assert encoder_plane([make_result(geometry=None)]) is None


def test_a_run_is_a_line_over_its_validations(write_run):
    axes, _ = run_plane([read(write_run("one", steps=(0, 4, 8, 12)))]).axes
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [-1.5, -1.6, -1.7, -1.8])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.3, 0.29, 0.28, 0.27])
    np.testing.assert_allclose(axes.collections[0].get_array(), [70, 71, 72, 73])
    assert run_plane([]) is None
