"""Reading sweeps from Hydra's folders."""

import json
import math

import pytest

from simcse_pl.reports.sweeps.sweep_results import is_sweep, read_sweeps
from simcse_pl.utils.errors import UserError

SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


def planned(*task, target=SWEEPER, params=None, **config):
    return {"hydra": {"sweeper": {"_target_": target, "params": params}, "overrides": {"task": list(task)}}, **config}


def test_jobs_are_in_the_order_of_their_numbers_with_their_options(write_sweep, job):
    jobs = [job(0.7 + 0.01 * n, seed=n, options={"+model.dropout": 0.1, "name": "'a b'"}) for n in range(11)]
    (sweep,) = read_sweeps({"mine": write_sweep("s", *jobs)})
    assert [one.name for one in sweep.jobs] == [str(n) for n in range(11)]
    assert [one.seed for one in sweep.jobs] == list(range(11))
    assert sweep.jobs[3].options == {"model.dropout": "0.1", "name": "a b", "seed": "3"}
    assert (sweep.jobs[3].value("model"), sweep.jobs[3].value("optimizer.lr")) == ("minilm", "default")
    assert [run.best["spearman"] for run in sweep.runs] == [0.7 + 0.01 * n for n in range(11)]
    assert (sweep.label, sweep.table, sweep.size, sweep.missing) == ("mine", None, None, [])


def test_null_scores_are_nan_and_values_that_a_search_chose_are_options(write_sweep, job):
    best = {"spearman": None, "alignment": None, "uniformity": -1.0}
    trial = {"values": {"optimizer.lr": 0.000123456789, "model.head": "mlp", "data.batch_size": 64}, "pruned": True}
    (sweep,) = read_sweeps({"": write_sweep("s", job(0.7, best=best, trial=trial))})
    (run,) = sweep.runs
    assert math.isnan(run.best["spearman"]) and math.isnan(run.best["alignment"]) and run.best["uniformity"] == -1
    assert sweep.jobs[0].options == {
        "seed": "0", "optimizer.lr": "0.0001235", "model.head": "mlp", "data.batch_size": "64",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("multirun", "missing"),
    [
        (planned("a=1,2", "seed=0,1,2", "b=7"), ["2", "3", "4", "5"]),
        (planned("seed=range(0,4)"), ["2", "3"]),
        (planned("a=1", params={"a": "1,2,3,4"}), []),  # the later one counts
        (planned("seed=0,1", params={"a": "'x y',z"}), ["2", "3"]),
        (planned(params={"sweep.row": "${row_names:}"}, sweep={"rows": {0.1: {}, "b": {}, "c": {}}}), ["2"]),
        (planned("a=1,2,3", target="elsewhere.Sweeper"), []),
        (planned("model=glob(*)"), []),
        (planned("a=${nowhere:}"), []),
        ({}, []),
    ],
)
def test_jobs_that_hydra_planned_and_did_not_start_are_missing(multirun, missing, write_sweep, job):
    (sweep,) = read_sweeps({"": write_sweep("s", job(0.7), job(0.8), multirun=multirun)})
    assert sweep.missing == missing


def test_folders_with_the_same_table_and_size_are_one_sweep(write_sweep, job):
    folders = {
        "a": write_sweep("a", job(0.7, row="0.1"), job(row="0.2"), table="table_3_dropout", size="mini"),
        "b": write_sweep("b", job(0.7, row="0.1"), None, job(0.7), table="table_3_dropout", size="mini"),
        "c": write_sweep("c", job(0.7, row="0.1"), table="table_3_dropout", size="paper"),
        "d": write_sweep("d", job(0.7), table="seeds", size="mini"),
        "e": write_sweep("e", job(0.7)),
        "f": write_sweep("f", job(0.7)),
    }
    sweeps = read_sweeps(folders)
    assert [(s.label, s.table, s.size, [j.name for j in s.jobs], s.missing) for s in sweeps] == [
        ("a", "table_3_dropout", "mini", ["a/0", "a/1", "b/0", "b/2"], ["b/1"]),
        ("c", "table_3_dropout", "paper", ["c/0"], []),
        ("d", "seeds", "mini", ["d/0"], []),
        ("e", None, None, ["e/0"], []),
        ("f", None, None, ["f/0"], []),
    ]


def test_a_sweep_is_a_folder_of_numbered_folders_that_is_not_a_run(write_sweep, job, write_run, tmp_path):
    assert is_sweep(write_sweep("s", job()))
    assert not is_sweep(write_run())
    assert not is_sweep(tmp_path / "s" / "0")
    assert not is_sweep(tmp_path / "nowhere")
    (tmp_path / "run" / "0").mkdir()
    assert not is_sweep(tmp_path / "run")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "1").write_text("")
    (tmp_path / "files" / "²").mkdir()
    assert not is_sweep(tmp_path / "files")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("0/results.json", '{"best": ', "0/results.json is not valid JSON: Expecting value"),
        ("0/results.json", "{}", "0/results.json is not a results file of train.py: best: Field required"),
        (
            "0/results.json",
            '{"best": {"spearman": "high"}, "test": {}}',
            "0/results.json is not a results file of train.py: best.spearman: Input should be a valid number",
        ),
        (
            "0/results.json",
            '{"label": "x", "encoder": "y", "sts": []}',
            "0/results.json was written by evaluate.py: give the folders of its jobs one by one",
        ),
        ("1/config/overrides.yaml", "- a: [", "1/config/overrides.yaml is damaged: "),
    ],
)
def test_a_damaged_file_is_a_one_line_error(file, content, message, write_sweep, job):
    folder = write_sweep("s", job(0.7), job())
    (folder / file).write_text(content)
    with pytest.raises(UserError) as error:
        read_sweeps({"": folder})
    assert message in str(error.value)
    with pytest.raises(UserError, match="failed: no job has a results.json; all have failed or none has finished yet"):
        read_sweeps({"a": write_sweep("failed", job(), job())})


def test_jobs_of_two_sweeps_in_one_folder_are_two_sweeps(write_sweep, job):
    folder = write_sweep("s", *(job(0.7, options={"sweep": name}) for name in "ab"), job())
    for number, table in enumerate(("seeds", "batch_size")):
        file = folder / str(number) / "results.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"sweep": {"table": table}}))
    sweeps = read_sweeps({"": folder})
    assert [(s.table, [j.name for j in s.jobs]) for s in sweeps] == [("seeds", ["0", "2"]), ("batch_size", ["1"])]
