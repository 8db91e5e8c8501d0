"""Figures as files: valid, deterministic, with text as text."""

import io
import xml.etree.ElementTree

import matplotlib
import pytest
from PIL import Image

from simcse_pl.reports.figures.encoders import spectra
from simcse_pl.reports.figures.style import figure_files


def test_files_are_valid_the_same_every_time_and_name_the_encoders(make_result):
    labels = ["a_b $x$ & <y>", "plain"]
    results = [make_result(label, seed=k) for k, label in enumerate(labels)]
    before = dict(matplotlib.rcParams)
    figure = spectra(results)
    files = figure_files("name", figure)
    assert files == figure_files("name", spectra(results)) and dict(matplotlib.rcParams) == before
    image = Image.open(io.BytesIO(files["name.png"]))
    assert image.size == pytest.approx(tuple(200 * figure.get_size_inches()), abs=1)
    texts = " ".join(xml.etree.ElementTree.fromstring(files["name.svg"]).itertext())
    assert all(label in texts for label in labels)
