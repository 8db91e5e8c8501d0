"""The figure of a sweep: its points, read back from the axes."""

import numpy as np

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
    assert sweep_figure(group(write_sweep("nan", job(float("nan"))))) is None
