"""Which jobs are compared with which, and differences from SimCSE, against scipy's paired t-test."""

import math

import numpy as np
import pytest
import yaml
from scipy.stats import ttest_rel

from simcse_pl.lab.seed_groups import CONFIDENCE, read_sweeps
from tests.lab.invented import group, job, of_seeds

SIMCSE = [0.835, 0.841, 0.838, 0.829]
OTHERS = {"esimcse": [0.840, 0.848, 0.839, 0.837], "mixcse": [0.836, 0.839, 0.841, 0.828]}


def counts(groups):
    """Return the number of scores on dev by the label of the group."""
    return [*groups.groups[["label", "dev n"]].itertuples(index=False, name=None)]


def test_jobs_are_in_the_order_of_their_numbers_with_their_options(write_sweep):
    jobs = [job(0.7 + 0.01 * n, seed=n, options={"+model.dropout": 0.1, "name": "'a b'"}) for n in range(11)]
    (sweep,) = read_sweeps({"mine": write_sweep("s", *jobs)})
    assert [one.label for one in sweep.jobs] == [str(n) for n in range(11)]
    assert sweep.jobs[3].options == {"model.dropout": "0.1", "name": "a b", "seed": "3"}
    assert (sweep.jobs[3].value("model"), sweep.jobs[3].value("optimizer.lr")) == ("minilm", "default")
    assert [run.best["spearman"] for run in sweep.results] == [0.7 + 0.01 * n for n in range(11)]
    assert (sweep.label, sweep.table, sweep.size) == ("mine", None, None)


def test_hydras_file_of_a_sweep_says_which_jobs_have_not_started_and_which_options_were_given(write_sweep):
    options = {"method": "simcse", "scheduler": "linear", "trainer.max_steps": 7, "val_every": 5}
    folder = write_sweep("s", *(job(dev, seed, options=options) for seed, dev in enumerate((0.7, None))))
    task = ["method=simcse,pcl", "val_every=5", "seed=0,1"]
    params = {"method": "glob(*)", "scheduler": "linear", "trainer.max_steps": 7}
    hydra = {"overrides": {"task": task}, "sweeper": {"params": params}}
    hydra["runtime"] = {"choices": {"hydra/sweeper": "basic"}}
    (folder / "multirun.yaml").write_text(yaml.safe_dump({"hydra": hydra}))
    sweep = group(folder)
    assert sweep.given == "method=simcse val_every=5"  # the others are of the sweep's config
    assert [(one.label, one.options["method"], one.options["seed"]) for one in sweep.jobs if not one.results] == [
        ("1", "simcse", "1"), ("2", "pcl", "0"), ("3", "pcl", "1")
    ]  # fmt: skip
    params["model.name"] = "${oc.env:NOT_SET_ANY_LONGER}"
    (folder / "multirun.yaml").write_text(yaml.safe_dump({"hydra": hydra}))
    sweep = group(folder)
    assert len(sweep.jobs) == 2 and sweep.given == "method=simcse val_every=5"


def test_an_option_is_equal_whatever_its_spelling(write_sweep):
    spelt = ({"a": "True", "b": "{file: x.csv, columns: [0, 1]}"}, {"a": "true", "b": "{file:x.csv,columns:[0,1]}"})
    (sweep,) = read_sweeps({"mine": write_sweep("s", *(job(0.7, seed=n, options=own) for n, own in enumerate(spelt)))})
    assert sweep.given == "a=true b={file:x.csv,columns:[0,1]}" and len(sweep.groups) == 1


def test_folders_with_the_same_table_and_size_are_one_sweep(write_sweep):
    folders = {
        "a": write_sweep("a", job(0.7, row="0.1"), job(row="0.2"), table="table_3_dropout", size="mini"),
        "b": write_sweep("b", job(0.7, row="0.1"), table="table_3_dropout", size="mini"),
        "c": write_sweep("c", job(0.7, row="0.1"), table="table_3_dropout", size="paper"),
        "d": write_sweep("d", job(0.7)),
    }
    assert [(s.label, s.table, s.size, [j.label for j in s.jobs]) for s in read_sweeps(folders)] == [
        ("a, b", "table_3_dropout", "mini", ["a/0", "a/1", "b/0"]),
        ("c", "table_3_dropout", "paper", ["c/0"]),
        ("d", None, None, ["d/0"]),
    ]


def test_jobs_that_differ_in_the_seed_alone_are_a_group(write_sweep):
    own = [{}, {"logger.wandb.group": "mine", "run_name": "b"}, {"test_tasks": "[]", "senteval_dir": "/x"}]  # of seeds
    rates = [{"model.dropout": rate, "logger": "csv"} for rate in (0.05, 0.1)]
    jobs = [job(0.7, seed=seed, options=rate | options) for seed, options in enumerate(own) for rate in rates]
    groups = group(write_sweep("s", *jobs))
    assert groups.options == ["model.dropout"]
    assert counts(groups) == [("model.dropout=0.05", 3), ("model.dropout=0.1", 3)]


def test_only_options_that_do_not_follow_from_the_row_separate_groups(write_sweep):
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


def test_transfer_is_the_mean_over_the_tasks_that_all_have(write_sweep):
    jobs = [
        job(0.7, seed=0, transfer_dev={"MR": 0.8, "CR": 0.9, "TREC": 0.5}),
        job(0.7, seed=1, transfer_dev={"MR": 0.7, "CR": 0.6, "TREC": None}, failed={"TREC": "no file"}),
        job(0.7, seed=2),
    ]
    groups = group(write_sweep("s", *jobs))
    assert groups.tasks["transfer"] == ["MR", "CR"]
    assert groups.runs["transfer"].tolist() == pytest.approx([85, 65, float("nan")], nan_ok=True)


def by_name(groups):
    return groups.groups.set_index("label").filter(like="dev ").to_dict("index")


def test_the_interval_is_that_of_the_paired_t_test(compare):
    found = by_name(compare(*of_seeds({"simcse": SIMCSE, **OTHERS})))
    for name, scores in OTHERS.items():
        mean, half = found[name]["dev difference"], found[name]["dev margin"]
        test = ttest_rel(100 * np.array(scores), 100 * np.array(SIMCSE))
        low, high = test.confidence_interval(CONFIDENCE)
        assert found[name]["dev pairs"] == 4
        assert [mean - half, mean + half] == pytest.approx([low, high], rel=1e-12)
        assert (abs(mean) > half) == (test.pvalue < 1 - CONFIDENCE) == (name == "esimcse")


def test_only_seeds_of_both_are_paired_and_a_seed_that_ran_twice_counts_once(compare):
    jobs = [("simcse", score, seed) for score, seed in ((0.80, 1), (0.90, 2), (math.nan, 3))]
    jobs += [("esimcse", score, seed) for score, seed in ((0.81, 2), (0.83, 2), (0.85, 1), (0.99, 3), (0.9, 7))]
    assert sorted(by_name(compare(*jobs))["esimcse"]["dev differences"]) == pytest.approx([-8, 5])


def test_a_method_is_compared_in_its_own_setting(compare):
    supervised = {"setting": "supervised"}
    jobs = [("esimcse", 0.8, 0), ("cosent", 0.7, 0, supervised), ("sup_simcse", 0.75, 0, supervised)]
    found = by_name(compare(*jobs, ("simcse", 0.78, 0)))
    assert list(found) == ["simcse", "esimcse", "sup_simcse", "cosent"]
    means = {name: gains["dev difference"] for name, gains in found.items() if gains["dev pairs"]}
    assert means == pytest.approx({"esimcse": 2, "cosent": -5})
