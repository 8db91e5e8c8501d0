"""The figure of a sweep: its points, read back from the axes."""

import numpy as np

from simcse_pl.lab.sweep_figure import sweep_figure
from tests.lab.invented import group, job


def test_means_deviations_and_seeds_are_beside_the_papers_numbers(write_sweep):
    scores = {"none": [0.83, 0.85], "contradiction 1.0": [0.85, 0.87]}
    jobs = [job(dev, seed=seed, row=row) for row, own in scores.items() for seed, dev in enumerate(own)]
    ours, theirs = sweep_figure(group(write_sweep("s", *jobs, table="table_7_hard_negative"))).axes
    means, _, (bars,) = ours.containers[0].lines
    np.testing.assert_allclose(means.get_xdata().astype(float), [84, 86])
    np.testing.assert_allclose(means.get_ydata().astype(float), [0, 1])
    ends = [bar[:, 0] for bar in bars.get_segments() if len(bar)]
    np.testing.assert_allclose(ends, [[mean - 2**0.5, mean + 2**0.5] for mean in (84, 86)])
    seeds = [line.get_xdata() for line in ours.lines if line.get_marker() == "."]
    np.testing.assert_allclose(np.concatenate(seeds).astype(float), [83, 85, 85, 87])
    np.testing.assert_allclose(theirs.containers[0].lines[0].get_xdata().astype(float), [84.9, 86.2])
    assert sweep_figure(group(write_sweep("nan", job(float("nan"))))) is None


def test_seeds_are_in_the_legend_once_also_if_the_first_series_has_one(write_sweep):
    runs = ((1, 1, 0), (2, 2, 0), (2, 2, 1), (3, 3, 0), (3, 3, 1), (4, 3, 0))
    figure = sweep_figure(group(write_sweep("s", *(job(0.7, seed, options={"a": a, "b": b}) for a, b, seed in runs))))
    assert [text.get_text() for text in figure.legends[0].get_texts()].count("one seed") == 1
