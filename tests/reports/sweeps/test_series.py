"""What goes on the axes of a sweep's figure."""

import numpy as np
import pytest

from simcse_pl.reports.sweeps.series import as_number, measured_series, paper_series, seed_series


def values(series):
    return {own.label: {point.value: point.score.mean for point in own.points} for own in series}


def test_rows_are_on_the_axis_with_every_seeds_score(write_sweep, job, group):
    scores = {0.05: [0.8, 0.82], "fixed 0.1": [0.6, 0.7]}
    jobs = [job(dev, seed=seed, row=row) for row, own in scores.items() for seed, dev in enumerate(own)]
    groups = group(write_sweep("s", *jobs, table="table_3_dropout"))
    varied, (series,) = measured_series(groups)
    assert (varied, series.label, series.paper) == ("dropout", "measured", False)
    for point, (row, own) in zip(series.points, scores.items(), strict=True):
        assert (point.value, point.runs) == (str(row), pytest.approx(100 * np.array(own)))
        assert point.score.mean == pytest.approx(100 * np.mean(own))
        assert point.score.deviation == pytest.approx(100 * np.std(own, ddof=1))
    (paper,) = paper_series(groups)
    assert (paper.label, paper.paper, len(paper.points)) == ("paper", True, 8)
    assert values([paper])["paper"] | {"fixed 0.1": 43.6, "0.05": 81.1} == values([paper])["paper"]


def test_columns_and_other_options_are_series_and_the_papers_have_the_same_numbers(write_sweep, job, group):
    jobs = [
        job(0.7, row="next sentence", column=column, options={"encoders": number, "model": model})
        for column, number in (("two encoders", 2), ("one encoder", 1))
        for model in ("bert", "roberta")
    ]
    groups = group(write_sweep("s", *jobs, table="table_2_objective"))
    assert [(own.number, own.label) for own in measured_series(groups)[1]] == [
        (0, "measured, one encoder, model=bert"),
        (1, "measured, one encoder, model=roberta"),
        (2, "measured, two encoders, model=bert"),
        (3, "measured, two encoders, model=roberta"),
    ]
    assert [(own.number, own.label) for own in paper_series(groups)] == [
        (0, "paper, one encoder"),
        (1, "paper, two encoders"),
    ]


def test_the_papers_column_is_the_sweeps_own_or_all(write_sweep, job, group):
    jobs = {c: write_sweep(str(c), job(0.7, row="x", column=c), table="table_6_pooling") for c in ("supervised", None)}
    assert [own.label for own in paper_series(group(jobs["supervised"]))] == ["paper, supervised"]
    assert [own.label for own in paper_series(group(jobs[None]))] == ["paper, unsupervised", "paper, supervised"]


def test_transfer_scores_are_no_points(write_sweep, job, group):
    (paper,) = paper_series(group(write_sweep("s", job(0.7, row="none"), table="table_d2_mlm")))
    assert values([paper]) == {"paper": {"none": 86.2, "0.01": 85.7, "0.1": 85.7, "1": 85.1}}


def test_without_rows_the_option_with_most_numbers_is_on_the_axis(write_sweep, job, group):
    jobs = [
        job(0.7 + n / 1000, options={"model.head": head, "data.batch_size": size})
        for n, (head, size) in enumerate((head, size) for head in ("mlp", "none", "x") for size in (64, 128))
    ]
    groups = group(write_sweep("s", *jobs, table="table_a1_hyperparameters"))
    varied, series = measured_series(groups)
    assert varied == "data.batch_size"
    assert list(values(series)) == [f"measured, model.head={head}" for head in ("mlp", "none", "x")]
    assert values(series)["measured, model.head=x"] == pytest.approx({"64": 70.4, "128": 70.5})
    assert paper_series(groups) == []


def test_more_series_than_one_can_tell_apart_are_one(write_sweep, job, group):
    jobs = [job(0.7, options={"a": n, "b": f"x{n}"}) for n in range(9)]
    varied, (series,) = measured_series(group(write_sweep("s", *jobs)))
    assert (varied, series.label, len(series.points)) == ("a", "measured", 9)


def test_of_seeds_alone_each_is_a_point(write_sweep, job, group):
    jobs = [job(0.7 + seed / 100, seed=seed) for seed in (5, 1)] + [job(float("nan"), seed=2), job(seed=3)]
    assert values([seed_series(group(write_sweep("s", *jobs)))])["measured"] == pytest.approx({"5": 75, "1": 71})


def test_what_is_a_number():
    assert [as_number(text) for text in ("1e-5", "0.0", "64", "fixed 0.1", "none", "nan", "inf", "")] == [
        1e-5, 0, 64, None, None, None, None, None,
    ]  # fmt: skip
