"""The table and the exit status at the end of a multirun."""

import pytest
from omegaconf import OmegaConf

from simcse_pl.reports.sweeps.hydra_callbacks import EvaluationTables, SweepTable


@pytest.fixture
def end(capsys):
    """End a sweep: its exit status, the cells of its tables, and the output."""

    def run(callback, folder, aggregation="all"):
        config = OmegaConf.create({"hydra": {"sweep": {"dir": str(folder)}}, "aggregation": aggregation})
        status = 0
        try:
            callback().on_multirun_end(config)
        except SystemExit as error:
            status = error.code
        out, err = capsys.readouterr()
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
        return status, rows, out, err

    return run


def test_evaluations_are_in_one_table_and_the_job_is_appended_to_a_label_that_occurs_twice(
    write_results, make_report, end
):
    labels = [*(f"encoder {k}" for k in range(10)), "encoder 3"]
    reports = [make_report(label, seed=seed, sts=("STS-B",), transfer=()) for seed, label in enumerate(labels)]
    for job, report in enumerate(reports):
        folder = write_results(str(job), report).parent
    status, rows, _, err = end(EvaluationTables, folder, "wmean")
    assert (status, err) == (0, "")
    scores = [f"{100 * report['sts'][0]['wmean']['spearman']:.2f}" for report in reports]
    labels[3], labels[10] = "encoder 3 (3)", "encoder 3 (10)"
    assert [row[:2] for row in rows[:11]] == [list(own) for own in zip(labels, scores, strict=True)]


@pytest.mark.parametrize("callback", [EvaluationTables, SweepTable])
def test_a_sweep_whose_jobs_all_failed_has_no_table(callback, write_sweep, job, end):
    assert end(callback, write_sweep("s", job(), job())) == (1, [], "", "error: 2 of 2 jobs failed: 0, 1\n")


def test_failed_jobs_and_tasks_are_named_and_make_the_sweep_fail(write_sweep, job, end):
    folder = write_sweep("s", job(0.7, options={"a": 1}), job(options={"a": 2}))
    status, rows, out, err = end(SweepTable, folder)
    assert (status, err) == (1, "error: 1 of 2 jobs failed: 1\n")
    assert "70.00 (1)" in rows[0]
    assert "failed or unfinished: 1 (a=2)" in out and out.endswith(f"figure and files: simcse report {folder}\n")
    status, _, out, err = end(SweepTable, write_sweep("t", job(0.7, failed={"TREC": "no file TREC.label"})))
    assert (status, err) == (1, "") and "failed: TREC: no file TREC.label (0)" in out


def test_a_user_error_is_one_line(write_results, make_report, end):
    folder = write_results("0", make_report("mine", paper={"table": "table_5_sts", "row": "BERT"})).parent
    status, _, _, err = end(EvaluationTables, folder)
    assert status == 1 and err.startswith("error: paper.row=BERT: choose one of") and err.count("\n") == 1


def test_the_start_of_a_sweep_prints_how_to_continue_it(capsys):
    SweepTable().on_multirun_start(OmegaConf.create({"hydra": {"sweep": {"dir": "x"}}}))
    assert capsys.readouterr().out == "sweep in x; to continue it, repeat the command with hydra.sweep.dir=x\n"
