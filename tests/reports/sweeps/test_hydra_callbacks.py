"""The table and the exit status at the end of a multirun."""

import pytest
from omegaconf import OmegaConf

from simcse_pl.reports.sweeps.hydra_callbacks import EvaluationTables, SweepTable


@pytest.fixture
def sweep(write_results):
    """Write results, one job each."""

    def write(*reports):
        for job, report in enumerate(reports):
            folder = write_results(str(job), report)
        return folder.parent

    return write


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


@pytest.mark.parametrize("aggregation", ["all", "wmean"])
def test_all_encoders_are_in_one_table_in_the_order_of_their_jobs(aggregation, sweep, make_report, end):
    reports = [make_report(f"encoder {seed}", seed=seed, sts=("STS-B",), transfer=()) for seed in range(11, 0, -1)]
    status, rows, _, err = end(EvaluationTables, sweep(*reports), aggregation)
    assert (status, err) == (0, "")
    scores = [[report["label"], f"{100 * report['sts'][0][aggregation]['spearman']:.2f}"] for report in reports]
    assert [row[:2] for row in rows[:11]] == scores


def test_the_job_is_appended_to_a_label_that_occurs_twice(sweep, make_report, end):
    reports = [make_report(label, seed=seed, sts=("STS-B",)) for seed, label in enumerate(("same", "other", "same"))]
    _, rows, _, _ = end(EvaluationTables, sweep(*reports))
    assert {row[0]: row[1] for row in rows[:3]} == {
        name: f"{100 * report['sts'][0]['all']['spearman']:.2f}"
        for name, report in zip(("same (0)", "other", "same (2)"), reports, strict=True)
    }


@pytest.mark.parametrize("callback", [EvaluationTables, SweepTable])
def test_a_sweep_whose_jobs_all_failed_has_no_table(callback, write_sweep, job, end):
    assert end(callback, write_sweep("s", job(), job())) == (1, [], "", "error: 2 of 2 jobs failed: 0, 1\n")


def test_failed_jobs_and_tasks_are_named_and_make_the_sweep_fail(sweep, make_report, end):
    part = make_report("part", sts=("STS-B",), failed={"STS14": "no folder STS14"})
    folder = sweep(make_report("whole", sts=("STS-B", "STS14")), part)
    status, rows, out, err = end(EvaluationTables, folder)
    assert (status, err, [row[0] for row in rows[:2]]) == (1, "", ["whole", "part"])
    assert "failed: STS14: no folder STS14 (part)" in " ".join(out.split())
    (folder / "0" / "results.json").unlink()
    status, rows, _, err = end(EvaluationTables, folder)
    assert (status, rows[0][0], err) == (1, "part", "error: 1 of 2 jobs failed: 0\n")


def test_a_user_error_is_one_line(sweep, make_report, end):
    folder = sweep(make_report("mine", paper={"table": "table_5_sts", "row": "BERT"}), make_report("other"))
    status, _, _, err = end(EvaluationTables, folder)
    assert status == 1 and err.startswith("error: paper.row=BERT: choose one of") and err.count("\n") == 1
    (folder / "1" / "results.json").write_text("{")
    status, _, _, err = end(EvaluationTables, folder)
    assert status == 1 and err.startswith(f"error: {folder}/1/results.json is not valid JSON") and err.count("\n") == 1


def test_the_start_of_a_sweep_prints_how_to_continue_it(capsys):
    SweepTable().on_multirun_start(OmegaConf.create({"hydra": {"sweep": {"dir": "x"}}}))
    assert capsys.readouterr().out == "sweep in x; to continue it, repeat the command with hydra.sweep.dir=x\n"


def test_failed_training_jobs_and_tasks_are_named_and_make_the_sweep_fail(write_sweep, job, end):
    folder = write_sweep("s", job(0.7, options={"a": 1}), job(options={"a": 2}))
    status, rows, out, err = end(SweepTable, folder)
    assert (status, err) == (1, "error: 1 of 2 jobs failed: 1\n")
    assert [row[:2] for row in rows] == [["1", "70.00 (1)"], ["2", "–"]]
    assert "failed or unfinished: 1 (a=2)" in out and out.endswith(f"figure and files: simcse report {folder}\n")
    status, _, _, err = end(SweepTable, write_sweep("t", job(0.7, failed={"TREC": "no file TREC.label"})))
    assert (status, err) == (1, "")
