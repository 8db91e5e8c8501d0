"""The table and the exit status at the end of a multirun."""

import json

import pytest
from omegaconf import OmegaConf

from simcse_pl.lab.multirun_report import MultirunReport
from simcse_pl.utils.files import write_text
from tests.lab.invented import job, make_report
from tests.support.helpers import composed


@pytest.fixture
def end(capsys):
    """End a sweep, and return its exit status and its output."""

    def run(folder):
        status = 0
        try:
            MultirunReport().on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": str(folder)}}}))
        except SystemExit as error:
            status = error.code
        return status, *capsys.readouterr()

    return run


def test_evaluations_are_in_one_table(write_results, end):
    for seed in (0, 1):
        folder = write_results(str(seed), make_report("encoder", seed=seed, sts=("STS-B",), transfer=())).parent
    status, out, err = end(folder)
    assert (status, err) == (0, "") and "encoder (0) │ 65.00" in out and "encoder (1) │ 66.00" in out
    assert (folder / "sts.md").exists()


def test_a_sweep_whose_jobs_all_failed_has_no_table(write_sweep, end):
    assert end(write_sweep("s", job(), job())) == (1, "", "error: 2 of 2 jobs failed: 0, 1\n")


def test_failed_jobs_and_tasks_are_named_and_make_the_sweep_fail(write_sweep, end):
    folder = write_sweep("s", job(0.7, options={"a": 1}), job(options={"a": 2}))
    status, out, err = end(folder)
    assert (status, err) == (1, "error: 1 of 2 jobs failed: 1\n") and "70.00 (1)" in out
    assert "70.00 (1)" in (folder / "sweep.md").read_text() and (folder / "sweep.png").exists()
    status, out, err = end(write_sweep("t", job(0.7, failed={"TREC": "no file"})))
    assert (status, err) == (1, "") and "failed: TREC: no file (0)" in out


def test_a_report_that_cannot_be_made_makes_the_sweep_fail(write_sweep, end, monkeypatch):
    def write_report(*arguments):
        raise ZeroDivisionError("in a table")

    monkeypatch.setattr("simcse_pl.lab.report.write_report", write_report)
    status, _, err = end(write_sweep("s", job(0.7)))
    assert status == 1 and "ZeroDivisionError: in a table" in err


@pytest.mark.parametrize(("done", "left"), [((), ""), ((1,), ", 2 of 3 jobs left")])
def test_a_sweep_says_how_to_continue_it_and_what_is_left(done, left, multirun_config, tmp_path, capsys):
    file = ["+callbacks.mine._target_=builtins.dict", "+callbacks.mine.file=${run_dir}/mine.csv"]
    for job_number in done:
        options = [f"seed={job_number + 1}", f"run_dir={tmp_path}/{job_number}", *file]
        trained = OmegaConf.to_yaml(composed(*options), resolve=True)
        write_text(tmp_path / str(job_number) / "config" / "resolved.yaml", trained)
        results = {"choices": {}, "overrides": [f"seed={job_number + 1}"], "best": {}, "test": {}}
        (tmp_path / str(job_number) / "results.json").write_text(json.dumps(results))
    config = multirun_config("seed=1,2,3", *file, f"hydra.sweep.dir={tmp_path}")
    MultirunReport().on_multirun_start(config)
    assert f"sweep in {tmp_path}{left}; to continue it, " in capsys.readouterr().out
    if done:  # by another sweep
        config.hydra.overrides.task = ["seed=4,5", *file]
        with pytest.raises(SystemExit):
            MultirunReport().on_multirun_start(config)
        assert "holds a finished job whose seed is 2, and not 5: choose another folder" in capsys.readouterr().err
