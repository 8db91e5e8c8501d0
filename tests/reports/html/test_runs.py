"""The runs of a page and their table."""

import pytest

from simcse_pl.reports.html.runs import default_label, options_in_common, read_runs, runs_table
from simcse_pl.utils.errors import UserError


def test_jobs_and_single_runs_have_their_curves_and_sweep(write_sweep, job, write_curves, tmp_path):
    first = write_sweep("first", job(0.7), job(0.8))
    second = write_sweep("second", job(0.6))
    write_curves(first / "1")
    alone = write_curves(tmp_path / "alone")
    runs, sweeps = read_runs({"a": first, "mine": alone, "b": second})
    assert [(run.job.name, run.sweep, list(run.curves)) for run in runs] == [
        ("a/0", 0, []),
        ("a/1", 0, ["speed", "train", "val"]),
        ("b/0", 1, []),
        ("mine", None, ["speed", "train", "val"]),
    ]
    assert [sweep.label for sweep in sweeps] == ["a", "b"]
    assert [run.dev for run in runs] == [pytest.approx(70), pytest.approx(80), pytest.approx(60), None]


def test_the_table_has_differing_options_and_scores(write_sweep, job, tmp_path):
    jobs = [job(0.7, test=0.6, options={"a": a, "b": 2}, best_step=40) for a in (1, "x")]
    runs, _ = read_runs({"s": write_sweep("s", *jobs)})
    table = runs_table(runs)
    shown = table.shown().to_dict("records")
    assert shown[1] == {
        "run": "1", "a": "x", "steps": "60", "best step": "40", "before": "60.00", "dev": "70.00", "test": "60.00",
        "alignment": "0.270", "uniformity": "-2.100",
    }  # fmt: skip
    assert "dev: STS-B dev, which selects the checkpoint" in table.notes[0]
    assert default_label(str(tmp_path / "s")) == str(tmp_path / "s")
    assert options_in_common(runs) == {"model": "minilm", "data": "wiki", "b": "2", "seed": "0"}


def test_the_table_has_the_state_of_each_run(write_sweep, job, write_curves):
    pruned = job(0.6, trial={"values": {"a": 1}, "pruned": True})
    broken = job(float("nan"), failed={"MR": "no file"})
    folder = write_sweep("s", job(0.7), job(), pruned, broken)
    runs, _ = read_runs({"s": folder})
    table = runs_table(runs)
    assert table.shown()["state"].tolist() == [
        "finished", "failed or unfinished", "pruned by the search", "finished",
    ]  # fmt: skip
    assert table.shown()["dev"].tolist() == ["70.00", "–", "60.00", "–"]
    assert [run.dev for run in runs][3] is None
    assert "failed: MR: no file (3)" in table.notes


def test_an_unfinished_run_has_no_scores(write_curves, tmp_path):
    (run,), _ = read_runs({"mine": write_curves(tmp_path / "run")})
    table = runs_table([run])
    assert (table.shown().loc[0, "state"], table.shown().loc[0, "dev"]) == ("failed or unfinished", "–")
    assert table.notes == ["no run has finished; scores are measured at the end"]
    assert options_in_common([run]) == {}
    assert default_label(str(tmp_path / "run")) == f"{tmp_path.name}/run"


def test_folders_without_curves_and_runs_with_the_same_label_are_errors(
    write_sweep, job, write_curves, write_results, make_report, tmp_path
):
    with pytest.raises(UserError, match=r"no metrics.csv in .*evaluated: give the folder of a training run or of a"):
        read_runs({"a": write_results("evaluated", make_report("x"))})
    with pytest.raises(UserError, match="two runs have the label 0: give different ones with --labels"):
        read_runs({"s": write_sweep("s", job(0.7)), "0": write_curves(tmp_path / "run")})


def test_a_run_on_queries_has_its_own_metric_and_no_other_columns(write_sweep, job):
    scores = {"before": {"mrr": 0.25}, "best": {"mrr": 0.5}, "test": {}, "test_before": {}}
    runs, _ = read_runs({"s": write_sweep("s", job(0.0, monitor="mrr", **scores), job())})
    table = runs_table(runs)
    assert list(table.frame) == ["run", "dev", "before", "best step", "steps", "state"]
    assert table.shown()["dev"].tolist() == ["50.00", "–"] and [run.monitor for run in runs] == [
        "val/mrr",
        "val/spearman",
    ]
    assert table.notes == ["mrr x 100; dev: STS-B dev, which selects the checkpoint; before: dev before training"]
