"""The table and the exit status at the end of a multirun."""

import pytest
from omegaconf import OmegaConf

from simcse_pl.reports.sweeps.hydra_callbacks import EvaluationTables, SweepTable


@pytest.fixture
def end(capsys):
    """End a sweep, and return its exit status and its output."""

    def run(callback, folder):
        status = 0
        try:
            callback().on_multirun_end(
                OmegaConf.create({"hydra": {"sweep": {"dir": str(folder)}}, "aggregation": "all"})
            )
        except SystemExit as error:
            status = error.code
        return status, *capsys.readouterr()

    return run


def test_evaluations_are_in_one_table(write_results, make_report, end):
    for seed in (0, 1):
        folder = write_results(str(seed), make_report("encoder", seed=seed, sts=("STS-B",), transfer=())).parent
    status, out, err = end(EvaluationTables, folder)
    assert (status, err) == (0, "") and "65.00" in out and "66.00" in out


@pytest.mark.parametrize("callback", [EvaluationTables, SweepTable])
def test_a_sweep_whose_jobs_all_failed_has_no_table(callback, write_sweep, job, end):
    assert end(callback, write_sweep("s", job(), job())) == (1, "", "error: 2 of 2 jobs failed: 0, 1\n")


def test_a_table_that_cannot_be_printed_makes_the_sweep_fail(write_sweep, job, end):
    class Failing(SweepTable):
        def print_tables(self, config, jobs):
            raise ZeroDivisionError("in a table")

    status, _, err = end(Failing, write_sweep("s", job(0.7)))
    assert status == 1 and "ZeroDivisionError: in a table" in err


def test_failed_jobs_and_tasks_are_named_and_make_the_sweep_fail(write_sweep, job, end):
    status, out, err = end(SweepTable, write_sweep("s", job(0.7, options={"a": 1}), job(options={"a": 2})))
    assert (status, err) == (1, "error: 1 of 2 jobs failed: 1\n") and "70.00 (1)" in out
    status, out, err = end(SweepTable, write_sweep("t", job(0.7, failed={"TREC": "no file"})))
    assert (status, err) == (1, "") and "failed: TREC: no file (0)" in out
