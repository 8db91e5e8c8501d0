"""Spectra, and scores by the number of dimensions: what is drawn."""

import numpy as np

from simcse_pl.reports.figures.encoders import dimension_curves, spectra


def test_spectra_are_lines_without_tiny_values(make_result):
    figure = spectra([make_result("a", seed=1), make_result("b", geometry={"spectrum": [1.0, 0.5, 1e-9, 0.0]})])
    first, second = figure.axes[0].lines
    np.testing.assert_allclose(first.get_xdata(), np.arange(1, 33))
    np.testing.assert_allclose(first.get_ydata(), [1 / (1 + 2 * k) for k in range(32)])
    np.testing.assert_array_equal(second.get_ydata(), [1, 0.5, np.nan, np.nan])
    assert spectra([make_result(geometry=None)]) is None


def test_each_encoder_is_a_line_from_few_dimensions_to_all(make_result):
    cut = {dim: make_result(seed=seed).model_dump() for dim, seed in (("16", 1), ("8", 0), ("4", 3))}
    results = [make_result("a", seed=5, settings={"dim": 16}, dims=cut), make_result("b")]
    (line,) = dimension_curves(results).axes[0].lines
    np.testing.assert_array_equal(line.get_xdata(), [4, 8, 16])
    means = [100 * np.mean([task.all.spearman for task in make_result(seed=seed).sts]) for seed in (3, 0, 5)]
    np.testing.assert_allclose(line.get_ydata(), means)  # the result of 16 dimensions is that of the encoder
