"""Spectra and similarities: what is drawn."""

import numpy as np
from simcse_pl.reports.figures.distributions import similarity_densities, spectra


def test_spectra_are_lines_of_different_dashes_with_a_legend(make_result):
    long = "a_long/name:of an_encoder that is broken into lines"
    figure = spectra([make_result(label, seed=k) for k, label in enumerate([long, *"bcdefgh"])])
    axes = figure.axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xdata(), np.arange(1, 33))
    np.testing.assert_allclose(axes.lines[1].get_ydata(), [1 / (1 + 2 * k) for k in range(32)])
    assert (axes.get_yscale(), axes.get_xlabel()) == ("log", "index")
    assert "singular value" in axes.get_ylabel()
    assert len({str(line._unscaled_dash_pattern) for line in axes.lines}) == 8
    assert len({line.get_color() for line in axes.lines}) == 8
    assert [" ".join(text.get_text().split()) for text in figure.legends[0].get_texts()] == [long, *"bcdefgh"]


def test_tiny_singular_values_are_not_drawn(make_result):
    axes = spectra([make_result(geometry={"spectrum": [1.0, 0.5, 1e-9, 0.0]})]).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [1, 0.5, np.nan, np.nan])
    assert axes.get_ylim()[0] > 0.1


def ridges(axes):
    """Return the histogram of each band, in the scale of the panel."""
    drawn = [patch.get_data() for patch in axes.patches]
    return [(data.values - data.baseline, data.edges) for data in drawn]


def test_similarities_have_a_panel_per_encoder_and_a_histogram_per_band(make_result):
    similarities = {"0-1": [0.0, 0.1, 0.1, 1.0000001], "1-2": [], "4-5": [0.91]}
    results = [
        make_result("a", geometry={"similarities": similarities}),
        make_result("b"),
        make_result("c", geometry=None),
    ]
    figure = similarity_densities(results)
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    bands = ridges(figure.axes[0])
    assert len(bands) == 5  # as the other encoder has them
    share, edges = bands[0]
    expected = np.histogram([0.0, 0.1, 0.1, 1.0], edges)[0] / 4
    np.testing.assert_allclose(share / share.max(), expected / expected.max())
    assert [counts.any() for counts, _ in bands] == [True, False, True, False, False]
    np.testing.assert_allclose(share.max() / bands[2][0].max(), 0.5)  # to one scale: half of them, and all
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["0–1", "1–2", "4–5", "2–3", "3–4"]


def test_the_axis_spans_from_the_lowest_similarity_to_one(make_result):
    figure = similarity_densities([make_result("a", geometry={"similarities": {"0-1": [-0.33, 0.5]}})])
    assert figure.get_supxlabel() == "cosine similarity"
    assert figure.get_supylabel() == "human score"
    np.testing.assert_allclose(figure.axes[0].get_xlim(), (-0.4, 1))


def test_the_lowest_panel_of_every_column_has_tick_labels(make_result):
    figure = similarity_densities([make_result(f"encoder {k}", seed=k) for k in range(5)])
    numbered = [any(label.get_visible() for label in axes.get_xticklabels()) for axes in figure.axes]
    assert numbered == [False, False, True, True, True]


def test_without_results_there_is_no_figure(make_result):
    assert spectra([make_result(geometry=None), make_result("b", geometry={})]) is None
    assert similarity_densities([make_result(geometry={"similarities": {"0-1": []}})]) is None
    assert spectra([]) is None
    assert similarity_densities([]) is None
