"""Which jobs are compared with which: rows, columns, options that differ, and scores over seeds."""

import numpy as np
import pytest

from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_results import read_sweeps

DEV = {"0.05": [0.81, 0.8123456789, 0.83], "0.1": [0.7, 0.75, 0.71]}


def labels(groups):
    return [(own.label, [job.name for job in own.jobs]) for own in groups.groups]


def test_jobs_that_differ_in_the_seed_alone_are_a_group(write_sweep, job, group):
    jobs = [
        job(DEV[rate][seed], seed=seed, options={"model.dropout": rate, "logger": "csv"})
        for seed in range(3)
        for rate in DEV
    ]
    groups = group(write_sweep("s", *jobs))
    assert groups.options == ["model.dropout"]
    assert labels(groups) == [("model.dropout=0.05", ["0", "2", "4"]), ("model.dropout=0.1", ["1", "3", "5"])]
    for own, scores in zip(groups.groups, DEV.values(), strict=True):
        assert groups.scores("dev", own) == pytest.approx(100 * np.array(scores))
        assert groups.scores("test", own) == pytest.approx(100 * (np.array(scores) - 0.05))
        assert groups.scores("alignment", own) == pytest.approx(0.2 + np.array(scores) / 10)
        assert groups.scores("uniformity", own) == pytest.approx(-3 * np.array(scores))
    dev = groups.spreads("dev")
    assert [own.mean for own in dev] == pytest.approx([100 * np.mean(scores) for scores in DEV.values()])
    assert [own.deviation for own in dev] == pytest.approx([100 * np.std(scores, ddof=1) for scores in DEV.values()])
    assert [own.count for own in dev] == [3, 3]
    assert groups.spreads("transfer") == [None, None]


def test_seeds_alone_are_one_group(write_sweep, job, group):
    groups = group(write_sweep("s", *(job(0.7, seed=seed) for seed in range(3)), table="seeds"))
    assert labels(groups) == [("all jobs", ["0", "1", "2"])]
    assert not groups.has_rows


def test_rows_are_in_the_papers_order_and_spelling_with_those_that_did_not_run(write_sweep, job, group):
    rows = ["fixed 0.1", 0.3, "0.10", 0, 0.1]
    groups = group(
        write_sweep("s", *(job(0.7, seed=n, row=row) for n, row in enumerate(rows)), table="table_3_dropout")
    )
    assert labels(groups) == [
        ("0.0", ["3"]), ("0.01", []), ("0.05", []), ("0.1", ["2", "4"]), ("0.15", []), ("0.2", []), ("0.5", []),
        ("fixed 0.1", ["0"]), ("0.3", ["1"]),
    ]  # fmt: skip
    assert groups.options == []


def test_rows_of_a_table_of_ones_own_are_in_the_jobs_order(write_sweep, job, group):
    groups = group(write_sweep("s", job(0.7, row="b"), job(0.7, row="a"), job(row="c"), table="mine"))
    assert labels(groups) == [("b", ["0"]), ("a", ["1"]), ("c", ["2"])]
    assert groups.paper is None and groups.has_rows


def test_an_option_that_a_row_stands_for_is_not_told_again_and_another_is(write_sweep, job, group):
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


def test_columns_are_told_apart_and_those_of_the_paper_come_in_its_order(write_sweep, job, group):
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


def test_what_the_paper_itself_has_not_is_not_missing(write_sweep, job, group):
    folder = write_sweep("s", job(0.7, row="QQP (134k)", column="134k pairs"), table="table_4_supervised_data")
    assert [label for label, _ in labels(group(folder))][-1] == "SNLI+MNLI all (942k), 134k pairs"


def test_a_failed_job_stands_where_it_would_have_stood(write_sweep, job, group):
    def of(setting, row, dev):
        return job(dev, row=row, column=dev and setting, options={"setting": setting})

    rows = ("CLS with MLP", "CLS without MLP")
    jobs = [of(setting, row, 0.7) for setting in ("unsupervised", "supervised") for row in rows]
    jobs[2] = of("supervised", rows[0], None)
    groups = group(write_sweep("s", *jobs, table="table_6_pooling"))
    failed = next(own for own in groups.groups if [job.name for job in own.jobs] == ["2"])
    assert (failed.row, failed.column, failed.runs) == (rows[0], "supervised", [])
    plain = group(write_sweep("plain", job(0.7, options={"a": 1}), job(options={"a": 2})))
    assert [(own.label, len(own.runs)) for own in plain.groups] == [("a=1", 1), ("a=2", 0)]


def test_a_choice_that_one_folder_was_given_is_compared_with_the_others_own(write_sweep, job):
    folders = {
        name: write_sweep(name, job(0.7, row="0.1", options=options, choices=choices), table="table_3_dropout")
        for name, options, choices in (
            ("a", {}, {"model": "minilm"}),
            ("b", {"model": "bert", "model.head": "mlp"}, {"model": "bert"}),
        )
    }
    (sweep,) = read_sweeps(folders)
    groups = [own for own in group_by_seed(sweep).groups if own.jobs]
    assert [own.options for own in groups] == [
        {"model": "minilm", "model.head": "default"},
        {"model": "bert", "model.head": "mlp"},
    ]


def test_a_score_that_is_not_a_number_counts_for_nothing(write_sweep, job, group):
    groups = group(write_sweep("s", job(0.7), job(float("nan"), seed=1), job(0.8, seed=2)))
    (dev,) = groups.spreads("dev")
    assert (dev.count, dev.mean) == (2, pytest.approx(75))


def test_transfer_is_the_mean_over_the_tasks_that_all_have(write_sweep, job, group):
    jobs = [
        job(0.7, seed=0, transfer_dev={"MR": 0.8, "CR": 0.9, "TREC": 0.5}),
        job(0.7, seed=1, transfer_dev={"MR": 0.7, "CR": 0.6, "TREC": None}, failed={"TREC": "no file"}),
        job(0.7, seed=2),
    ]
    groups = group(write_sweep("s", *jobs))
    assert groups.transfer_tasks == ["MR", "CR"]
    assert groups.scores("transfer", groups.groups[0]) == pytest.approx([85, 65])


@pytest.mark.parametrize(
    ("table", "size", "title"),
    [
        ("table_3_dropout", "mini", "Table 3 of the paper, dropout, size=mini"),
        ("table_d1_temperature", None, "Table D.1 of the paper, temperature"),
        ("batch_size", "mini", "batch size (sweep), size=mini"),
        (None, None, "sweep"),
    ],
)
def test_the_title_names_the_table_or_the_sweep_and_its_folder(table, size, title, write_sweep, job, group):
    assert group(write_sweep("s", job(0.7), table=table, size=size)).title == title
