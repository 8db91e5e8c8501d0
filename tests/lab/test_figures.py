"""Figures of encoders and of training runs, read back from the axes, and their fonts."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from simcse_pl.lab.figures import encoder_plane, run_plane, similarity_densities, spectra
from simcse_pl.lab.read_runs import read
from simcse_pl.lab.style import STYLE, figure_files
from tests.lab.invented import make_result


def test_an_encoder_is_a_point_with_its_average_over_common_tasks_as_colour():
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


def test_the_score_of_a_run_may_be_its_alignment(write_run):
    run = read(write_run("one"))
    monitored = replace(run, results=SimpleNamespace(monitor="alignment"))
    assert monitored.points["score"].equals(run.points["alignment"].rename("score"))
    assert monitored.points["alignment"].equals(run.points["alignment"])


def test_a_run_is_a_line_over_its_finite_validations(write_run):
    folder = write_run("one")
    with (folder / "metrics.csv").open("a") as file:
        file.write("0,15,,inf,0.5,-1\n")
    axes, _ = run_plane([read(folder)]).axes
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [-1.5, -1.6, -1.7, -1.8])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.3, 0.29, 0.28, 0.27])
    np.testing.assert_allclose(axes.collections[0].get_array(), [70, 71, 72, 73])
    assert run_plane([]) is None


def test_spectra_are_lines_without_tiny_values():
    figure = spectra([make_result("a", seed=1), make_result("b", geometry={"spectrum": [1.0, 0.5, 1e-9, 0.0]})])
    first, second = figure.axes[0].lines
    np.testing.assert_allclose(first.get_xdata(), np.arange(1, 33))
    np.testing.assert_allclose(first.get_ydata(), [1 / (1 + 2 * k) for k in range(32)])
    np.testing.assert_array_equal(second.get_ydata(), [1, 0.5, np.nan, np.nan])
    assert spectra([make_result(geometry=None)]) is None


def test_similarities_have_a_panel_per_encoder_and_a_histogram_per_band():
    own = {"similarities": {"0-1": [-0.33, 0.1, 0.1, 1.0000001], "1-2": [], "4-5": [0.91]}}
    results = make_result("a", geometry=own), make_result("b"), make_result("c", geometry=None)
    figure = similarity_densities([*results])
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    drawn = [patch.get_data() for patch in figure.axes[0].patches]
    bands = [data.values - data.baseline for data in drawn]
    assert [counts.any() for counts in bands] == [True, False, True, False, False]
    expected = np.histogram([-0.33, 0.1, 0.1, 1.0], drawn[0].edges)[0] / 4
    np.testing.assert_allclose(bands[0] / bands[0].max(), expected / expected.max())
    np.testing.assert_allclose(bands[0].max() / bands[2].max(), 0.5)  # to one scale: half of them, and all


def test_characters_that_no_font_has_are_one_line(caplog):
    figure = Figure()
    figure.suptitle("语 \U00012000")  # of cuneiform
    with warnings.catch_warnings(action="error"):
        for name in ("a", "b"):
            assert [*figure_files(name, figure)] == [f"{name}.png", f"{name}.svg", f"{name}.pdf"]
    (line,) = caplog.messages
    assert "\U00012000: install" in line and STYLE["font.family"][0] == "DejaVu Sans"
