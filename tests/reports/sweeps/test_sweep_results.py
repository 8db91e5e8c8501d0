"""Reading sweeps from Hydra's folders."""

import json
import math

import pytest

from simcse_pl.reports.sweeps.sweep_results import is_sweep, read_sweeps
from simcse_pl.utils.errors import UserError


def test_jobs_are_in_the_order_of_their_numbers_with_their_options(write_sweep, job):
    jobs = [job(0.7 + 0.01 * n, seed=n, options={"+model.dropout": 0.1, "name": "'a b'"}) for n in range(11)]
    (sweep,) = read_sweeps({"mine": write_sweep("s", *jobs)})
    assert [one.name for one in sweep.jobs] == [str(n) for n in range(11)]
    assert sweep.jobs[3].options == {"model.dropout": "0.1", "name": "a b", "seed": "3"}
    assert (sweep.jobs[3].value("model"), sweep.jobs[3].value("optimizer.lr")) == ("minilm", "default")
    assert [run.best["spearman"] for run in sweep.runs] == [0.7 + 0.01 * n for n in range(11)]
    assert (sweep.label, sweep.table, sweep.size) == ("mine", None, None)


def test_null_scores_are_nan_and_values_that_a_search_chose_are_options(write_sweep, job):
    best = {"spearman": None, "alignment": None, "uniformity": -1.0}
    trial = {"values": {"optimizer.lr": 0.000123456789, "model.head": "mlp", "data.batch_size": 64}, "pruned": True}
    (sweep,) = read_sweeps({"": write_sweep("s", job(0.7, best=best, trial=trial))})
    (run,) = sweep.runs
    assert math.isnan(run.best["spearman"]) and run.best["uniformity"] == -1
    assert sweep.jobs[0].options == {
        "seed": "0", "optimizer.lr": "0.0001235", "model.head": "mlp", "data.batch_size": "64",
    }  # fmt: skip


def test_folders_with_the_same_table_and_size_are_one_sweep(write_sweep, job):
    folders = {
        "a": write_sweep("a", job(0.7, row="0.1"), job(row="0.2"), table="table_3_dropout", size="mini"),
        "b": write_sweep("b", job(0.7, row="0.1"), job(0.7), table="table_3_dropout", size="mini"),
        "c": write_sweep("c", job(0.7, row="0.1"), table="table_3_dropout", size="paper"),
        "d": write_sweep("d", job(0.7)),
        "e": write_sweep("e", job(0.7)),
    }
    assert [(s.label, s.table, s.size, [j.name for j in s.jobs]) for s in read_sweeps(folders)] == [
        ("a", "table_3_dropout", "mini", ["a/0", "a/1", "b/0", "b/1"]),
        ("c", "table_3_dropout", "paper", ["c/0"]),
        ("d", None, None, ["d/0"]),
        ("e", None, None, ["e/0"]),
    ]
    folder = write_sweep("two", *(job(0.7, options={"sweep": name}) for name in "ab"))
    for number, table in enumerate(("seeds", "batch_size")):
        file = folder / str(number) / "results.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"sweep": {"table": table}}))
    assert [sweep.table for sweep in read_sweeps({"": folder})] == ["seeds", "batch_size"]


def test_a_sweep_is_a_folder_of_numbered_folders_that_is_not_a_run(write_sweep, job, write_run, tmp_path):
    assert is_sweep(write_sweep("s", job()))
    assert not is_sweep(write_run()) and not is_sweep(tmp_path / "s" / "0") and not is_sweep(tmp_path / "nowhere")
    (tmp_path / "run" / "0").mkdir()
    assert not is_sweep(tmp_path / "run")


def test_a_damaged_file_and_a_sweep_without_results_are_errors(write_sweep, job):
    folder = write_sweep("s", job(0.7))
    for content, message in {'{"best": ': "is not valid JSON", "{}": "is not a results file: best"}.items():
        (folder / "0" / "results.json").write_text(content)
        with pytest.raises(UserError, match=f"0/results.json {message}"):
            read_sweeps({"": folder})
    with pytest.raises(UserError, match=r"failed: no job has a results.json"):
        read_sweeps({"a": write_sweep("failed", job(), job())})
