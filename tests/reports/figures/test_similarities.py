"""Cosine similarities by human score: what is drawn."""

import numpy as np

from simcse_pl.reports.figures.encoders import similarity_densities


def test_similarities_have_a_panel_per_encoder_and_a_histogram_per_band(make_result):
    similarities = {"0-1": [-0.33, 0.1, 0.1, 1.0000001], "1-2": [], "4-5": [0.91]}
    results = [
        make_result("a", geometry={"similarities": similarities}),
        make_result("b"),
        make_result("c", geometry=None),
    ]
    figure = similarity_densities(results)
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    drawn = [patch.get_data() for patch in figure.axes[0].patches]
    bands = [data.values - data.baseline for data in drawn]
    assert [counts.any() for counts in bands] == [True, False, True, False, False]
    expected = np.histogram([-0.33, 0.1, 0.1, 1.0], drawn[0].edges)[0] / 4
    np.testing.assert_allclose(bands[0] / bands[0].max(), expected / expected.max())
    np.testing.assert_allclose(bands[0].max() / bands[2].max(), 0.5)  # to one scale: half of them, and all
