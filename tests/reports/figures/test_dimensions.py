"""The figure of scores by the number of dimensions: what is drawn."""

import numpy as np
from simcse_pl.reports.figures.dimensions import dimension_curves


def test_each_encoder_is_a_line_from_few_dimensions_to_all(make_result):
    cut = {dim: make_result(seed=seed).model_dump() for dim, seed in (("16", 1), ("8", 0), ("4", 3))}
    results = [make_result("a", seed=5, settings={"dim": 16}, dims=cut), make_result("b")]
    axes = dimension_curves(results).axes[0]
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), [4, 8, 16])
    means = [100 * np.mean([task.all.spearman for task in make_result(seed=seed).sts]) for seed in (3, 0, 5)]
    np.testing.assert_allclose(line.get_ydata(), means)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["4", "8", "16"]
    assert axes.get_ylabel() == "average of 7 STS tasks,\nSpearman x 100"


def test_a_number_that_is_all_dimensions_leaves_the_results_of_the_encoder(make_result):
    result = make_result("a", seed=5, settings={"dim": 16}, dims={"16": make_result(seed=1).model_dump()})
    assert result.of_dims() == {16: result}


def test_without_dimensions_there_is_no_figure(make_result):
    assert dimension_curves([make_result("a")]) is None
