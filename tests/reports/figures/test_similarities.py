"""Cosine similarities by human score: what is drawn."""

import numpy as np

from simcse_pl.reports.figures.encoders import similarity_densities


def ridges(axes):
    """Return the histogram of each band, in the scale of the panel."""
    drawn = [patch.get_data() for patch in axes.patches]
    return [(data.values - data.baseline, data.edges) for data in drawn]


def test_similarities_have_a_panel_per_encoder_and_a_histogram_per_band(make_result):
    similarities = {"0-1": [-0.33, 0.1, 0.1, 1.0000001], "1-2": [], "4-5": [0.91]}
    results = [
        make_result("a", geometry={"similarities": similarities}),
        make_result("b"),
        make_result("c", geometry=None),
    ]
    figure = similarity_densities(results)
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    np.testing.assert_allclose(figure.axes[0].get_xlim(), (-0.4, 1))
    bands = ridges(figure.axes[0])
    assert len(bands) == 5  # as the other encoder has them
    share, edges = bands[0]
    expected = np.histogram([-0.33, 0.1, 0.1, 1.0], edges)[0] / 4
    np.testing.assert_allclose(share / share.max(), expected / expected.max())
    assert [counts.any() for counts, _ in bands] == [True, False, True, False, False]
    np.testing.assert_allclose(share.max() / bands[2][0].max(), 0.5)  # to one scale: half of them, and all
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["0–1", "1–2", "4–5", "2–3", "3–4"]
    assert similarity_densities([make_result(geometry={"similarities": {"0-1": []}})]) is None
