"""Which jobs are compared with which; test_sweep_tables.py has their scores."""

import pytest


def counts(groups):
    """Return the number of scores on dev by the label of the group."""
    return [*groups.groups[["label", "dev n"]].itertuples(index=False, name=None)]


def test_jobs_that_differ_in_the_seed_alone_are_a_group(write_sweep, job, group):
    jobs = [
        job(0.7, seed=seed, options={"model.dropout": rate, "logger": "csv"})
        for seed in range(3)
        for rate in (0.05, 0.1)
    ]
    groups = group(write_sweep("s", *jobs))
    assert groups.options == ["model.dropout"]
    assert counts(groups) == [("model.dropout=0.05", 3), ("model.dropout=0.1", 3)]


def test_only_options_that_do_not_follow_from_the_row_separate_groups(write_sweep, job, group):
    jobs = [
        job(0.7, row=row, options={"model.head": head, "model": model})
        for row, head in (("CLS with MLP", "mlp"), ("CLS without MLP", "none"))
        for model in ("bert", "roberta")
    ]
    groups = group(write_sweep("s", *jobs, table="table_6_pooling"))
    assert groups.options == ["model"]
    assert [label for label, count in counts(groups) if count] == [
        "CLS with MLP, model=bert", "CLS with MLP, model=roberta",
        "CLS without MLP, model=bert", "CLS without MLP, model=roberta",
    ]  # fmt: skip


def test_transfer_is_the_mean_over_the_tasks_that_all_have(write_sweep, job, group):
    jobs = [
        job(0.7, seed=0, transfer_dev={"MR": 0.8, "CR": 0.9, "TREC": 0.5}),
        job(0.7, seed=1, transfer_dev={"MR": 0.7, "CR": 0.6, "TREC": None}, failed={"TREC": "no file"}),
        job(0.7, seed=2),
    ]
    groups = group(write_sweep("s", *jobs))
    assert groups.transfer_tasks == ["MR", "CR"]
    assert groups.runs["transfer"].tolist() == pytest.approx([85, 65, float("nan")], nan_ok=True)
