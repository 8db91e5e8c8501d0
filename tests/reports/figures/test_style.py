"""Figures as files: valid, deterministic, with text as text."""

import dataclasses
import io
import xml.etree.ElementTree

import matplotlib
import pytest
from matplotlib.figure import Figure
from PIL import Image
from simcse_pl.reports.figures.distributions import similarity_densities, spectra

from simcse_pl.reports.figures.alignment_uniformity import encoder_plane, run_plane
from simcse_pl.reports.figures.style import STYLE, colour_scale, figure_files
from simcse_pl.results.evaluation_results import read

LABELS = ["a_b $x$ & <y>", "plain"]
FIGURES = {"encoders": encoder_plane, "runs": run_plane, "spectra": spectra, "similarities": similarity_densities}


@pytest.mark.parametrize("name", FIGURES)
def test_files_are_valid_the_same_every_time_and_name_the_encoders(name, make_result, write_run):
    results = [make_result(label, seed=k) for k, label in enumerate(LABELS)]
    shown = [dataclasses.replace(read(write_run(str(k))), label=label) for k, label in enumerate(LABELS)]
    before = dict(matplotlib.rcParams)
    figure, again = (FIGURES[name](shown if name == "runs" else results) for _ in range(2))
    files = figure_files("name", figure)
    assert files == figure_files("name", again)
    assert dict(matplotlib.rcParams) == before
    assert list(files) == ["name.png", "name.svg"] and b"<dc:date>" not in files["name.svg"]
    image = Image.open(io.BytesIO(files["name.png"]))
    assert image.size == pytest.approx(tuple(200 * figure.get_size_inches()), abs=1)
    assert image.convert("L").getextrema() == (0, 255)
    texts = " ".join(xml.etree.ElementTree.fromstring(files["name.svg"]).itertext())
    assert all(label in texts for label in LABELS)


def test_colours_span_the_values_and_one_value_is_in_the_middle():
    figure = Figure()
    figure.add_subplot()
    with matplotlib.rc_context(STYLE):
        assert colour_scale(figure, [60.0, 76.5, 70.0], "x").get_clim() == (60, 76.5)
        assert colour_scale(figure, [70.0], "x").get_clim() == (69, 71)
