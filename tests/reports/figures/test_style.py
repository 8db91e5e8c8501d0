"""Figures as files: valid, deterministic, with text as text."""

import io
import xml.etree.ElementTree

import matplotlib
import pytest
from matplotlib.figure import Figure
from PIL import Image

from simcse_pl.reports.figures.alignment_uniformity import encoder_plane, run_plane
from simcse_pl.reports.figures.distributions import similarity_densities, spectra
from simcse_pl.reports.figures.style import STYLE, colour_scale, figure_files
from simcse_pl.results.evaluation_results import read


@pytest.fixture(params=["encoders", "runs", "spectra", "similarities"])
def draw(request, make_result, write_run):
    labels = ["a_b $x$ & <y>", "plain"]
    results = [make_result(label, seed=k) for k, label in enumerate(labels)]
    runs = [read(write_run(label)) for label in ("one", "two")]
    return {
        "encoders": (lambda: encoder_plane(results), labels),
        "runs": (lambda: run_plane(runs), ["one", "two"]),
        "spectra": (lambda: spectra(results), labels),
        "similarities": (lambda: similarity_densities(results), labels),
    }[request.param]


def test_png_and_svg_are_valid_and_name_the_encoders(draw):
    figure, labels = draw[0](), draw[1]
    files = figure_files("name", figure)
    assert list(files) == ["name.png", "name.svg"]
    image = Image.open(io.BytesIO(files["name.png"]))
    width, height = figure.get_size_inches()
    assert image.size == (pytest.approx(200 * width, abs=1), pytest.approx(200 * height, abs=1))
    assert image.convert("L").getextrema() == (0, 255)
    texts = " ".join(xml.etree.ElementTree.fromstring(files["name.svg"]).itertext())
    for label in labels:
        assert label in texts


def test_the_bytes_are_the_same_every_time(draw):
    before = dict(matplotlib.rcParams)
    first, second = (figure_files("name", draw[0]()) for _ in range(2))
    assert first == second
    assert b"<dc:date>" not in first["name.svg"]
    assert dict(matplotlib.rcParams) == before


def test_colours_span_the_values_and_one_value_is_in_the_middle():
    figure = Figure()
    figure.add_subplot()
    with matplotlib.rc_context(STYLE):
        assert colour_scale(figure, [60.0, 76.5, 70.0], "x").get_clim() == (60, 76.5)
        assert colour_scale(figure, [70.0], "x").get_clim() == (69, 71)
