"""Which jobs are compared with which, and their scores over seeds against numpy."""

import numpy as np
import pytest

from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_results import read_sweeps

DEV = {"0.05": [0.81, 0.8123456789, 0.83], "0.1": [0.7, 0.75, 0.71]}


def labels(groups):
    return [(own.label, list(own.runs.index)) for own in groups.groups]


def test_jobs_that_differ_in_the_seed_alone_are_a_group(write_sweep, job, group):
    jobs = [
        job(DEV[rate][seed], seed=seed, options={"model.dropout": rate, "logger": "csv"})
        for seed in range(3)
        for rate in DEV
    ]
    groups = group(write_sweep("s", *jobs))
    assert groups.options == ["model.dropout"]
    assert labels(groups) == [("model.dropout=0.05", ["0", "2", "4"]), ("model.dropout=0.1", ["1", "3", "5"])]
    for own, scores in zip(groups.groups, map(np.array, DEV.values()), strict=True):
        expected = {
            "dev": 100 * scores,
            "test": 100 * (scores - 0.05),
            "alignment": 0.2 + scores / 10,
            "uniformity": -3 * scores,
        }
        for score, values in expected.items():
            np.testing.assert_allclose(own.runs[score], values)
    dev = groups.over_seeds("dev")
    np.testing.assert_allclose(dev["mean"], [100 * np.mean(scores) for scores in DEV.values()])
    np.testing.assert_allclose(dev["std"], [100 * np.std(scores, ddof=1) for scores in DEV.values()])
    assert dev["count"].tolist() == [3, 3] and groups.over_seeds("transfer")["count"].tolist() == [0, 0]


def test_seeds_alone_are_one_group_and_nan_is_not_counted(write_sweep, job, group):
    jobs = [job(0.7), job(float("nan"), seed=1), job(0.8, seed=2)]
    groups = group(write_sweep("s", *jobs, table="seeds"))
    assert labels(groups) == [("all jobs", ["0", "1", "2"])]
    assert not groups.has_rows
    assert groups.over_seeds("dev").loc[0, ["count", "mean"]].tolist() == pytest.approx([2, 75])


def test_rows_are_in_the_papers_order_and_spelling_with_those_that_did_not_run(write_sweep, job, group):
    rows = ["fixed 0.1", 0.3, "0.10", 0, 0.1]
    jobs = (job(0.7, seed=n, row=row) for n, row in enumerate(rows))
    groups = group(write_sweep("s", *jobs, table="table_3_dropout"))
    assert labels(groups) == [
        ("0.0", ["3"]), ("0.01", []), ("0.05", []), ("0.1", ["2", "4"]), ("0.15", []), ("0.2", []), ("0.5", []),
        ("fixed 0.1", ["0"]), ("0.3", ["1"]),
    ]  # fmt: skip
    assert groups.options == []


def test_rows_of_another_table_are_in_the_jobs_order(write_sweep, job, group):
    groups = group(write_sweep("s", job(0.7, row="b"), job(0.7, row="a"), job(row="c"), table="mine"))
    assert labels(groups) == [("b", ["0"]), ("a", ["1"])]  # the failed job has an unknown column
    assert groups.paper is None and groups.has_rows


def test_without_rows_a_failed_job_has_an_empty_group(write_sweep, job, group):
    plain = group(write_sweep("plain", job(0.7, options={"a": 1}), job(options={"a": 2})))
    assert labels(plain) == [("a=1", ["0"]), ("a=2", [])]


def test_only_options_that_do_not_follow_from_the_row_separate_groups(write_sweep, job, group):
    jobs = [
        job(0.7, row=row, options={"model.head": head, "model": model})
        for row, head in (("CLS with MLP", "mlp"), ("CLS without MLP", "none"))
        for model in ("bert", "roberta")
    ]
    groups = group(write_sweep("s", *jobs, table="table_6_pooling"))
    assert groups.options == ["model"]
    assert [label for label, own in labels(groups) if own] == [
        "CLS with MLP, model=bert", "CLS with MLP, model=roberta",
        "CLS without MLP, model=bert", "CLS without MLP, model=roberta",
    ]  # fmt: skip


def test_columns_are_in_the_papers_order(write_sweep, job, group):
    jobs = [
        job(0.7, seed=seed, row=row, column=column, options={"encoders": number})
        for number, column in (("two", "two encoders"), ("one", "one encoder"))
        for row in ("unsupervised SimCSE", "delete one word")
        for seed in (0, 1)
    ]
    groups = group(write_sweep("s", *jobs, table="table_2_objective"))
    assert groups.columns == groups.known_columns == ["one encoder", "two encoders"]
    assert groups.options == []
    assert labels(groups) == [
        ("next sentence, one encoder", []), ("next sentence, two encoders", []),
        ("next 3 sentences, one encoder", []), ("next 3 sentences, two encoders", []),
        ("delete one word, one encoder", ["6", "7"]), ("delete one word, two encoders", ["2", "3"]),
        ("unsupervised SimCSE, one encoder", ["4", "5"]), ("unsupervised SimCSE, two encoders", ["0", "1"]),
    ]  # fmt: skip


def test_cells_that_the_paper_lacks_have_no_group(write_sweep, job, group):
    folder = write_sweep("s", job(0.7, row="QQP (134k)", column="134k pairs"), table="table_4_supervised_data")
    assert [label for label, _ in labels(group(folder))][-1] == "SNLI+MNLI all (942k), 134k pairs"


def test_a_choice_of_one_folder_is_compared_with_the_default_of_the_other(write_sweep, job):
    folders = {
        name: write_sweep(name, job(0.7, row="0.1", options=options, choices=choices), table="table_3_dropout")
        for name, options, choices in (
            ("a", {}, {"model": "minilm"}),
            ("b", {"model": "bert", "model.head": "mlp"}, {"model": "bert"}),
        )
    }
    (sweep,) = read_sweeps(folders)
    assert [own.options for own in group_by_seed(sweep).groups if len(own.runs)] == [
        {"model": "minilm", "model.head": "default"},
        {"model": "bert", "model.head": "mlp"},
    ]


def test_transfer_is_the_mean_over_the_tasks_that_all_have(write_sweep, job, group):
    jobs = [
        job(0.7, seed=0, transfer_dev={"MR": 0.8, "CR": 0.9, "TREC": 0.5}),
        job(0.7, seed=1, transfer_dev={"MR": 0.7, "CR": 0.6, "TREC": None}, failed={"TREC": "no file"}),
        job(0.7, seed=2),
    ]
    groups = group(write_sweep("s", *jobs))
    assert groups.transfer_tasks == ["MR", "CR"]
    assert groups.groups[0].runs["transfer"].tolist() == pytest.approx([85, 65, float("nan")], nan_ok=True)
