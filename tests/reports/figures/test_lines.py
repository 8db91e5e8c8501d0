"""Spectra, and scores by the number of dimensions: what is drawn."""

import numpy as np

from simcse_pl.reports.figures.encoders import dimension_curves, spectra


def test_spectra_are_lines_of_different_dashes_without_tiny_values(make_result):
    long = "a_long/name:of an_encoder that is broken into lines"
    results = [make_result(label, seed=k) for k, label in enumerate([long, *"bcdefg"])]
    figure = spectra([*results, make_result("h", geometry={"spectrum": [1.0, 0.5, 1e-9, 0.0]})])
    axes = figure.axes[0]
    np.testing.assert_allclose(axes.lines[1].get_xdata(), np.arange(1, 33))
    np.testing.assert_allclose(axes.lines[1].get_ydata(), [1 / (1 + 2 * k) for k in range(32)])
    np.testing.assert_array_equal(axes.lines[7].get_ydata(), [1, 0.5, np.nan, np.nan])
    assert len({str(line._unscaled_dash_pattern) for line in axes.lines}) == 8
    assert [" ".join(text.get_text().split()) for text in figure.legends[0].get_texts()] == [long, *"bcdefgh"]
    assert spectra([make_result(geometry=None), make_result("b", geometry={})]) is None


def test_each_encoder_is_a_line_from_few_dimensions_to_all(make_result):
    cut = {dim: make_result(seed=seed).model_dump() for dim, seed in (("16", 1), ("8", 0), ("4", 3))}
    results = [make_result("a", seed=5, settings={"dim": 16}, dims=cut), make_result("b")]
    axes = dimension_curves(results).axes[0]
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), [4, 8, 16])
    means = [100 * np.mean([task.all.spearman for task in make_result(seed=seed).sts]) for seed in (3, 0, 5)]
    np.testing.assert_allclose(line.get_ydata(), means)  # the result of 16 dimensions is that of the encoder
    assert [text.get_text() for text in axes.get_xticklabels()] == ["4", "8", "16"]
    assert dimension_curves([make_result("a")]) is None
