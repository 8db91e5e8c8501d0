"""The axes of parallel coordinates."""

import pytest

from simcse_pl.reports.html.parallel import option_axis, parallel_coordinates


def test_options_that_differ_come_before_scores(write_sweep, job, group):
    options = [{"model.dropout": d, "model.pooling": p, "log_every": 1} for d in (0.1, 0.05) for p in ("mean", "cls")]
    jobs = [job(0.5 + k / 10, test=0.4, options=own, seed=k % 2) for k, own in enumerate(options)]
    found = parallel_coordinates(group(write_sweep("s", *jobs)))
    axes = {axis.label: axis for axis in found.axes}
    assert list(axes) == ["model.dropout", "model.pooling", "seed", "alignment", "uniformity", "test", "dev"]
    assert found.jobs == ["0", "1", "2", "3"]
    assert axes["model.dropout"].values == [1, 1, 0, 0] and axes["model.dropout"].names == ["0.05", "0.1"]
    assert axes["model.pooling"].values == [0, 1, 0, 1] and axes["model.pooling"].names == ["mean", "cls"]
    assert axes["dev"].values == pytest.approx([50, 60, 70, 80]) and axes["dev"].names == []
    assert axes["test"].values == pytest.approx([40] * 4)
    assert axes["uniformity"].values == pytest.approx([-1.5, -1.8, -2.1, -2.4])


def test_jobs_without_a_score_are_left_out_and_incomplete_scores_have_no_axis(write_sweep, job, group):
    jobs = [job(0.7, options={"a": 1}), job(options={"a": 2}), job(float("nan"), options={"a": 3})]
    found = parallel_coordinates(group(write_sweep("s", *jobs, job(0.8, test=float("nan"), options={"a": 4}))))
    assert (found.jobs, found.left_out) == (["0", "3"], ["1", "2"])
    assert [axis.label for axis in found.axes] == ["a", "alignment", "uniformity", "dev"]
    assert found.axes[0].names == ["1", "4"]


def test_rows_are_named_by_what_the_table_varies_and_trial_numbers_are_no_axis(write_sweep, job, group):
    rows = write_sweep("rows", *(job(0.7, row=row) for row in ("fixed 0.1", 0.1)), table="table_3_dropout")
    assert parallel_coordinates(group(rows)).axes[0].label == "dropout"
    trials = [{"values": {"optimizer.lr": lr}, "pruned": False} for lr in (1e-5, 2e-5)]
    jobs = [job(0.7, options={"search.trial": k}, trial=trial) for k, trial in enumerate(trials)]
    assert parallel_coordinates(group(write_sweep("search", *jobs))).axes[0].label == "optimizer.lr"


def test_fewer_than_two_scores_or_equal_options_have_no_coordinates(write_sweep, job, group):
    assert parallel_coordinates(group(write_sweep("one", job(0.7, options={"a": 1}), job(options={"a": 2})))) is None
    assert parallel_coordinates(group(write_sweep("alike", job(0.7), job(0.8)))) is None


def test_sorted_numbers_are_before_names_and_evenly_spaced():
    axis = option_axis("x", ["0.1", "fixed 0.1", "0.02", "1e-3", "default", "0.1"])
    assert axis.names == ["1e-3", "0.02", "0.1", "fixed 0.1", "default"]
    assert axis.values == [2, 3, 1, 0, 4, 2]
    assert axis.ticks == [0, 1, 2, 3, 4]


def test_many_numbers_are_on_a_scale_logarithmic_if_wide():
    narrow = option_axis("x", [str(k / 10) for k in range(1, 11)])
    assert narrow.values == pytest.approx([k / 10 for k in range(1, 11)]) and narrow.ticks == []
    wide = option_axis("x", [f"{10**-k * 1.5}" for k in range(9)])
    assert wide.values == pytest.approx([0.176091 - k for k in range(9)], abs=1e-6)
    assert dict(zip(wide.names, wide.ticks, strict=True))["0.001"] == pytest.approx(-3)
    assert min(wide.ticks) >= min(wide.values) and max(wide.ticks) <= max(wide.values)
    assert option_axis("x", [str(k - 4) for k in range(10)]).ticks == []  # no logarithm of 0
    assert len(option_axis("x", [*"abcdefghij", "1"]).names) == 11
