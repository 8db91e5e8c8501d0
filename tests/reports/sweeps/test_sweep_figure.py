"""The figure of a sweep: its points, read back from the axes."""

import numpy as np
import pytest

from simcse_pl.reports.sweeps.sweep_figure import sweep_figure


def points(axes, number=0):
    """Return the means of a series and the ends of their error bars."""
    container = axes.containers[number]
    segments = container.lines[2][0].get_segments() if container.lines[2] else []
    return container.lines[0].get_xdata().astype(float), [bar[:, 0] for bar in segments if len(bar)]


def dots(axes):
    """Return the scores of single seeds."""
    return np.concatenate([line.get_xdata() for line in axes.lines if line.get_marker() == "."]).astype(float)


def names(figure):
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []


def test_means_deviations_and_seeds_are_beside_the_papers_numbers(write_sweep, job, group):
    scores = {"none": [0.83, 0.85], "contradiction 1.0": [0.85, 0.87]}
    jobs = [job(dev, seed=seed, row=row) for row, own in scores.items() for seed, dev in enumerate(own)]
    figure = sweep_figure(group(write_sweep("s", *jobs, table="table_7_hard_negative")))
    ours, theirs = figure.axes
    assert names(figure) == [
        "none", "contradiction 0.5", "contradiction 1.0", "contradiction 2.0", "contradiction+neutral 1.0",
    ]  # fmt: skip
    means, bars = points(ours)
    np.testing.assert_allclose(means, [84, 86])
    np.testing.assert_allclose(bars, [[x - 2**0.5, x + 2**0.5] for x in means])
    np.testing.assert_allclose(ours.containers[0].lines[0].get_ydata().astype(float), [0, 2])
    np.testing.assert_allclose(dots(ours), [83, 85, 85, 87])
    np.testing.assert_allclose(points(theirs)[0], [84.9, 86.1, 86.2, 86.2, 85.3])
    assert theirs.containers[0].lines[0].get_markerfacecolor() == "white"
    assert (ours.get_xlabel(), ours.get_ylabel()) == ("dev (Spearman x 100)", "hard negatives")
    assert legend(figure) == ["measured", "paper"]


def test_columns_and_other_options_are_series_and_the_paper_has_its_columns(write_sweep, job, group):
    jobs = [
        job(0.7, row="next sentence", column=column, options={"encoders": number, "model": model})
        for column, number in (("two encoders", 2), ("one encoder", 1))
        for model in ("bert", "roberta")
    ]
    assert legend(sweep_figure(group(write_sweep("s", *jobs, table="table_2_objective")))) == [
        "measured, one encoder, model=bert", "measured, one encoder, model=roberta",
        "measured, two encoders, model=bert", "measured, two encoders, model=roberta",
        "paper, one encoder", "paper, two encoders",
    ]  # fmt: skip


def test_the_option_with_most_values_is_on_the_axis_with_sorted_numbers(write_sweep, job, group):
    jobs = [
        job(0.7 + size / 10000 + k / 100, options={"data.batch_size": size, "optimizer.lr": rate})
        for k, rate in enumerate(("1e-5", "3e-5"))
        for size in (128, 64, 256)
    ]
    figure = sweep_figure(group(write_sweep("s", *jobs)))
    assert names(figure) == ["data.batch_size=64", "data.batch_size=128", "data.batch_size=256"]
    assert legend(figure) == ["measured, optimizer.lr=1e-5", "measured, optimizer.lr=3e-5"]
    for number in range(2):
        means = [70 + size / 100 + number for size in (128, 64, 256)]
        np.testing.assert_allclose(points(figure.axes[0], number)[0], means)


def test_if_only_the_seed_varies_there_is_one_mean_and_no_score_is_no_figure(write_sweep, job, group):
    figure = sweep_figure(group(write_sweep("s", *(job(dev, seed=n) for n, dev in enumerate((0.70, 0.73, 0.71))))))
    assert names(figure) == ["all jobs"]
    np.testing.assert_allclose(points(figure.axes[0])[0], [71 + 1 / 3])
    np.testing.assert_allclose(dots(figure.axes[0]), [70, 73, 71])
    assert sweep_figure(group(write_sweep("nan", job(float("nan"))))) is None


def test_methods_are_drawn_as_differences_from_simcse_beside_the_published_ones(compare, of_seeds):
    scores = {"esimcse": [0.81, 0.83, 0.80], "hardness_weighting": [0.80, 0.79, 0.77], "simcse": [0.80, 0.81, 0.79]}
    figure = sweep_figure(compare(*of_seeds(scores)))
    ours, theirs = figure.axes
    assert names(figure) == ["esimcse", "hardness_weighting"]
    means, bars = points(ours)
    np.testing.assert_allclose(means, [4 / 3, -4 / 3])
    np.testing.assert_allclose(bars, [[-0.101, 2.768], [-4.202, 1.535]], atol=1e-3)
    np.testing.assert_allclose(dots(ours), [1, 2, 1, 0, -2, -2], atol=1e-12)
    np.testing.assert_allclose(points(theirs)[0], [78.27 - 76.25])
    assert ours.get_xlabel() == "difference from SimCSE on dev,\nSpearman x 100, 95% interval"
    assert ours.get_xscale() == "linear"


@pytest.mark.parametrize(("other", "count"), [("mine", 1), ("pcl", 2)])
def test_a_panel_of_published_differences_needs_one(compare, other, count):
    assert len(sweep_figure(compare(("simcse", 0.8, 0), (other, 0.81, 0))).axes) == count


def test_a_difference_far_from_the_others_leaves_them_legible(compare, of_seeds):
    scores = {"simcse": [0.8, 0.81], "esimcse": [0.804, 0.812], "promptbert": [0.3, 0.35], "pcl": [0.799, 0.811]}
    ours, _ = sweep_figure(compare(*of_seeds(scores))).axes
    assert ours.get_xscale() == "symlog"
    (low, high), (means, _) = ours.get_xlim(), points(ours)
    assert np.all((low < means) & (means < high))
