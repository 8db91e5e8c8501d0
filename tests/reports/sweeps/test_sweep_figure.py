"""The figure of a sweep: its points, read back from the axes."""

import numpy as np
import pytest

from simcse_pl.reports.sweeps.sweep_figure import sweep_figure
from tests.reports.conftest import of_seeds

TEMPERATURES = {"dot product": 0.80, 0.001: 0.81, 0.01: 0.82, 0.05: 0.86, 0.1: 0.79, 1: 0.66}


def curve(axes, number=0):
    """Return the points of a series, and the ends of its error bars."""
    container = axes.containers[number]
    points = np.stack(container.lines[0].get_data(), axis=-1)
    segments = container.lines[2][0].get_segments() if container.lines[2] else []
    return points, segments


def hollow(axes, number=0):
    return axes.containers[number].lines[0].get_markerfacecolor() == "white"


def dots(axes):
    """Return the scores of single seeds."""
    lines = [line for line in axes.lines if line.get_marker() == "."]
    return np.concatenate([np.stack(line.get_data(), axis=-1) for line in lines])


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []


@pytest.fixture
def temperatures(write_sweep, job, group):
    jobs = [job(dev + s / 100, seed=s, row=row) for row, dev in TEMPERATURES.items() for s in range(3)]
    return sweep_figure(group(write_sweep("s", *jobs, table="table_d1_temperature", size="mini")))


def test_numbers_are_on_a_logarithmic_axis_and_names_beside_it(temperatures):
    numbers, names = temperatures.axes
    assert numbers.get_xscale() == "log"
    assert numbers.get_xlabel() == "temperature"
    assert numbers.get_ylabel() == "dev (Spearman x 100)"
    points, bars = curve(numbers)
    np.testing.assert_allclose(points, [[0.001, 82], [0.01, 83], [0.05, 87], [0.1, 80], [1, 67]])
    np.testing.assert_allclose([bar[:, 1] for bar in bars], [[y - 1, y + 1] for _, y in points])
    points, bars = curve(names)
    np.testing.assert_allclose(points, [[0, 81]])
    np.testing.assert_allclose(bars[0][:, 1], [80, 82])
    assert [label.get_text() for label in names.get_xticklabels()] == ["dot\nproduct"]
    assert [label.get_text() for label in numbers.get_xticklabels()] == ["0.001", "0.01", "0.05", "0.1", "1"]


def test_the_papers_points_are_hollow_and_share_a_legible_axis_with_ours(temperatures):
    numbers, names = temperatures.axes
    points, _ = curve(numbers, 1)
    np.testing.assert_allclose(points, [[0.001, 84.9], [0.01, 85.4], [0.05, 86.2], [0.1, 82], [1, 64]])
    np.testing.assert_allclose(curve(names, 1)[0], [[0, 85.9]])
    assert [hollow(numbers, number) for number in (0, 1)] == [False, True]
    assert legend(temperatures) == ["measured", "paper"]


def test_each_seed_is_a_dot_and_everything_is_within_the_axes(temperatures):
    numbers, names = temperatures.axes
    expected = [[t, 100 * dev + s] for t, dev in TEMPERATURES.items() if t != "dot product" for s in range(3)]
    np.testing.assert_allclose(dots(numbers), expected)
    np.testing.assert_allclose(dots(names), [[0, 80], [0, 81], [0, 82]])
    for axes in temperatures.axes:
        (low, high), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        for container in axes.containers:
            x, y = container.lines[0].get_data()
            assert np.all((low < x) & (x < high) & (bottom < y) & (y < top))


def test_scores_far_from_the_papers_have_a_panel_of_their_own(write_sweep, job, group):
    jobs = [job(dev, row=row) for row, dev in ((0.0, 0.70), (0.1, 0.71), (0.5, 0.69), ("fixed 0.1", 0.7))]
    figure = sweep_figure(group(write_sweep("s", *jobs, table="table_3_dropout")))
    numbers, names, their_numbers, their_names = figure.axes
    np.testing.assert_allclose(curve(numbers)[0], [[0, 70], [0.1, 71], [0.5, 69]])
    np.testing.assert_allclose(curve(names)[0], [[0, 70]])
    np.testing.assert_allclose(curve(their_numbers)[0][:3], [[0, 71.1], [0.01, 72.6], [0.05, 81.1]])
    np.testing.assert_allclose(curve(their_names)[0], [[0, 43.6]])
    assert [len(axes.containers) for axes in figure.axes] == [1, 1, 1, 1]
    assert hollow(their_numbers) and not hollow(numbers)
    assert their_numbers.get_ylabel() == "paper, dev (Spearman x 100)"
    assert numbers.get_xscale() == "linear"
    assert numbers.get_xlim() == their_numbers.get_xlim()
    assert not len(dots(numbers))  # one seed is its mean
    assert not any(len(bar) for bar in curve(numbers)[1])


def test_names_are_below_each_other_in_the_papers_order(write_sweep, job, group):
    jobs = [
        job(dev + s / 100, seed=s, row=row)
        for row, dev in (("none", 0.84), ("contradiction 1.0", 0.86))
        for s in (-1, 1)
    ]
    figure = sweep_figure(group(write_sweep("s", *jobs, table="table_7_hard_negative")))
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["none", *(f"contradiction {weight}" for weight in (0.5, 1.0, 2.0)), "contradiction+neutral 1.0"]
    points, bars = curve(axes)
    np.testing.assert_allclose(points, [[84, 0], [86, 2]])
    np.testing.assert_allclose([bar[:, 0] for bar in bars], [[x - 2**0.5, x + 2**0.5] for x, _ in points])
    np.testing.assert_allclose(curve(axes, 1)[0], [[84.9, 0], [86.1, 1], [86.2, 2], [86.2, 3], [85.3, 4]])
    np.testing.assert_allclose(dots(axes), [[83, 0], [85, 0], [85, 2], [87, 2]])
    assert axes.get_ylim() == (4.5, -0.5)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("dev (Spearman x 100)", "hard negatives")


def test_a_grid_is_a_line_per_value_of_the_other_option(write_sweep, job, group):
    jobs = [
        job(0.7 + size / 10000 + k / 100, options={"data.batch_size": size, "optimizer.lr": rate})
        for k, rate in enumerate(("1e-5", "3e-5"))
        for size in (128, 64, 256)
    ]
    (axes,) = (figure := sweep_figure(group(write_sweep("s", *jobs)))).axes
    for number in range(2):
        expected = [[size, 70 + size / 100 + number] for size in (64, 128, 256)]
        np.testing.assert_allclose(curve(axes, number)[0], expected)
    lines = [container.lines[0] for container in axes.containers]
    assert lines[0].get_linestyle() != lines[1].get_linestyle() and lines[0].get_marker() != lines[1].get_marker()
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "data.batch_size"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["64", "128", "256"]
    assert legend(figure) == ["measured, optimizer.lr=1e-5", "measured, optimizer.lr=3e-5"]


def test_evenly_spaced_values_are_on_a_linear_axis_and_ticks_too_close_to_read_are_not_set(write_sweep, job, group):
    jobs = [job(0.7, options={"optimizer.lr": rate}) for rate in ("1e-5", "3e-5", "5e-5")]
    assert sweep_figure(group(write_sweep("even", *jobs))).axes[0].get_xscale() == "linear"
    jobs = [job(0.7, options={"a": value}) for value in (0, 0.001, 5, 10)]
    (axes,) = sweep_figure(group(write_sweep("close", *jobs))).axes
    assert "0.001" not in [label.get_text() for label in axes.get_xticklabels()]


def test_too_many_series_are_one_without_a_line(write_sweep, job, group):
    jobs = [job(0.7 + n / 100, options={"a": n % 3, "b": f"x{n}"}) for n in range(9)]
    (axes,) = sweep_figure(group(write_sweep("s", *jobs))).axes
    assert axes.containers[0].lines[0].get_linestyle() == "None"
    assert len(curve(axes)[0]) == 9


def test_if_only_the_seed_varies_each_seed_is_a_point_with_the_mean_as_a_line(write_sweep, job, group):
    scores = [0.70, 0.73, 0.71]
    figure = sweep_figure(group(write_sweep("s", *(job(dev, seed=n) for n, dev in enumerate(scores)))))
    (axes,) = figure.axes
    np.testing.assert_allclose(curve(axes)[0], [[70, 0], [73, 1], [71, 2]])
    assert axes.get_ylabel() == "seed"
    mean, deviation = 100 * np.mean(scores), 100 * np.std(scores, ddof=1)
    assert axes.get_title() == f"mean ± standard deviation: {mean:.2f} ± {deviation:.2f}"
    (band,) = axes.patches
    np.testing.assert_allclose([band.get_x(), band.get_width()], [mean - deviation, 2 * deviation])
    assert any(np.allclose(line.get_xdata(), mean) for line in axes.lines)
    assert legend(figure) == []


def test_one_run_and_one_row_are_drawn_and_no_score_is_no_figure(write_sweep, job, group):
    (axes,) = sweep_figure(group(write_sweep("one", job(0.7)))).axes
    assert not axes.patches
    figure = sweep_figure(group(write_sweep("row", job(0.7, row="x"), table="mine")))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["x"]
    same = write_sweep("same", job(0.7, options={"a": "0.1"}), job(0.7, options={"a": "0.10"}))
    assert len(sweep_figure(group(same)).axes) == 1
    assert sweep_figure(group(write_sweep("s", job(float("nan"))))) is None


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


@pytest.mark.parametrize(
    ("column", "expected"), [("supervised", ["supervised"]), (None, ["unsupervised", "supervised"])]
)
def test_the_papers_column_is_that_of_the_sweep_or_all(column, expected, write_sweep, job, group):
    figure = sweep_figure(group(write_sweep("s", job(0.7, row="x", column=column), table="table_6_pooling")))
    assert legend(figure) == ["measured", *(f"paper, {name}" for name in expected)]


def test_the_option_with_the_most_numbers_is_on_the_axis(write_sweep, job, group):
    jobs = [
        job(0.7 + n / 1000, options={"model.head": head, "data.batch_size": size})
        for n, (head, size) in enumerate((head, size) for head in ("mlp", "none", "x") for size in (64, 128))
    ]
    figure = sweep_figure(group(write_sweep("s", *jobs, table="table_a1_hyperparameters")))
    assert figure.axes[0].get_xlabel() == "data.batch_size"
    assert legend(figure) == [f"measured, model.head={head}" for head in ("mlp", "none", "x")]
    np.testing.assert_allclose(curve(figure.axes[0], 2)[0], [[64, 70.4], [128, 70.5]])


def test_methods_are_drawn_as_differences_from_simcse_beside_the_published_ones(compare):
    scores = {"esimcse": [0.81, 0.83, 0.80], "hardness_weighting": [0.80, 0.79, 0.77], "simcse": [0.80, 0.81, 0.79]}
    figure = sweep_figure(compare(*of_seeds(scores)))
    ours, theirs = figure.axes
    assert [label.get_text() for label in ours.get_yticklabels()] == ["esimcse", "hardness_weighting"]
    points, bars = curve(ours)
    np.testing.assert_allclose(points, [[4 / 3, 0], [-4 / 3, 1]])
    np.testing.assert_allclose([bar[:, 0] for bar in bars], [[-0.101, 2.768], [-4.202, 1.535]], atol=1e-3)
    np.testing.assert_allclose(dots(ours), [[1, 0], [2, 0], [1, 0], [0, 1], [-2, 1], [-2, 1]], atol=1e-12)
    np.testing.assert_allclose(curve(theirs)[0], [[78.27 - 76.25, 0]])
    assert hollow(theirs) and not hollow(ours)
    assert ours.get_xlabel() == "difference from SimCSE on dev,\nSpearman x 100, 95% interval"
    assert theirs.get_xlabel() == "published difference,\nSTS average on test"
    assert ours.get_xscale() == "linear"
    for axes in figure.axes:
        assert any(np.allclose(line.get_xdata(), 0) for line in axes.lines)


def test_methods_without_simcse_are_drawn_with_their_scores(compare):
    (axes,) = sweep_figure(compare(("esimcse", 0.8, 0), ("pcl", 0.81, 0))).axes
    np.testing.assert_allclose(curve(axes)[0], [[80, 0], [81, 1]])


def test_methods_that_are_not_published_have_one_panel(compare):
    (axes,) = sweep_figure(compare(("simcse", 0.8, 0), ("mine", 0.81, 0))).axes
    np.testing.assert_allclose(curve(axes)[0], [[1, 0]])


def test_a_difference_far_from_the_others_leaves_them_legible(compare):
    scores = {"simcse": [0.8, 0.81], "esimcse": [0.804, 0.812], "promptbert": [0.3, 0.35], "pcl": [0.799, 0.811]}
    ours, _ = sweep_figure(compare(*of_seeds(scores))).axes
    assert ours.get_xscale() == "symlog"
    low, high = ours.get_xlim()
    points, _ = curve(ours)
    assert np.all((low < points[:, 0]) & (points[:, 0] < high))
