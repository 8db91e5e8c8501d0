"""What a multirun ends with: one table of all its jobs, and an exit status that tells of those that failed."""

import json

import pytest
from omegaconf import OmegaConf

from simcse_pl.reports.sweeps.hydra_callbacks import EvaluationTables, SweepTable


@pytest.fixture
def sweep(tmp_path):
    """The folder of a sweep: the jobs' results, None where a job has none."""

    def write(*reports):
        for job, report in enumerate(reports):
            (tmp_path / str(job) / "config").mkdir(parents=True)
            if report is not None:
                (tmp_path / str(job) / "results.json").write_text(json.dumps(report))
        (tmp_path / "multirun.yaml").write_text("")
        return tmp_path

    return write


def config_of(folder, aggregation="all"):
    return OmegaConf.create({"hydra": {"sweep": {"dir": str(folder)}}, "aggregation": aggregation})


def rows_of(printed):
    """The cells of every table, row by row."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if line.startswith("│")]


def sts_row(report, aggregation="all"):
    return [report["label"], *(f"{100 * scores[aggregation]['spearman']:.2f}" for scores in report["sts"])]


@pytest.mark.parametrize("aggregation", ["all", "wmean"])
def test_all_encoders_stand_in_one_table_in_the_jobs_order(aggregation, sweep, make_report, capsys):
    reports = [make_report(f"encoder {seed}", seed=seed, sts=("STS12", "STS-B"), transfer=()) for seed in (3, 1, 2)]
    EvaluationTables().on_multirun_end(config_of(sweep(*reports), aggregation))
    printed = capsys.readouterr()
    rows = rows_of(printed.out)
    start = rows.index([*sts_row(reports[0], aggregation), rows[0][-1]])
    assert [row[:3] for row in rows[start : start + 3]] == [sts_row(report, aggregation) for report in reports]
    encoders = [row[0] for row in rows if row[0].startswith("encoder ")]
    assert len(encoders) > 6 and encoders == ["encoder 3", "encoder 1", "encoder 2"] * (len(encoders) // 3)
    assert not printed.err


def test_jobs_are_in_the_order_of_their_numbers(sweep, make_report, capsys):
    reports = [make_report(f"encoder {job}", sts=("STS-B",), transfer=()) for job in range(11)]
    EvaluationTables().on_multirun_end(config_of(sweep(*reports)))
    labels = [row[0] for row in rows_of(capsys.readouterr().out)]
    assert labels[:11] == [f"encoder {job}" for job in range(11)]


def test_encoders_of_one_label_are_told_apart_by_their_jobs(sweep, make_report, capsys):
    reports = [make_report(label, seed=seed, sts=("STS-B",)) for seed, label in enumerate(("same", "other", "same"))]
    EvaluationTables().on_multirun_end(config_of(sweep(*reports)))
    scores = {row[0]: row[1] for row in rows_of(capsys.readouterr().out)[:3]}
    assert scores == {
        name: f"{100 * report['sts'][0]['all']['spearman']:.2f}"
        for name, report in zip(("same (0)", "other", "same (2)"), reports, strict=True)
    }


def test_a_job_without_results_is_told_and_the_others_are_shown(sweep, make_report, capsys):
    folder = sweep(None, make_report("mine", sts=("STS-B",)), None)
    with pytest.raises(SystemExit) as exit_:
        EvaluationTables().on_multirun_end(config_of(folder))
    printed = capsys.readouterr()
    assert exit_.value.code == 1 and printed.err == "error: 2 of 3 jobs failed: 0, 2\n"
    assert rows_of(printed.out)[0][0] == "mine"


def test_a_sweep_whose_jobs_all_failed_has_no_table(sweep, capsys):
    with pytest.raises(SystemExit) as exit_:
        EvaluationTables().on_multirun_end(config_of(sweep(None, None)))
    printed = capsys.readouterr()
    assert exit_.value.code == 1 and (printed.out, printed.err) == ("", "error: 2 of 2 jobs failed: 0, 1\n")


def test_a_job_that_could_not_measure_a_task_makes_the_sweep_fail(sweep, make_report, capsys):
    whole = make_report("whole", sts=("STS-B", "STS14"))
    part = make_report("part", sts=("STS-B",), failed={"STS14": "no folder STS14"})
    with pytest.raises(SystemExit) as exit_:
        EvaluationTables().on_multirun_end(config_of(sweep(whole, part)))
    printed = capsys.readouterr()
    assert exit_.value.code == 1
    assert [row[0] for row in rows_of(printed.out)[:2]] == ["whole", "part"]
    assert "failed: STS14: no folder STS14 (part)" in " ".join(printed.out.split())


def test_a_job_whose_results_are_damaged_is_told_in_one_line(sweep, make_report, capsys):
    folder = sweep(make_report("mine"), make_report("other"))
    (folder / "1" / "results.json").write_text("{")
    with pytest.raises(SystemExit) as exit_:
        EvaluationTables().on_multirun_end(config_of(folder))
    err = capsys.readouterr().err
    assert exit_.value.code == 1
    assert err.startswith(f"error: {folder}/1/results.json is damaged") and err.count("\n") == 1


def test_a_row_that_the_paper_does_not_have_is_told_in_one_line(sweep, make_report, capsys):
    folder = sweep(make_report("mine", paper={"table": "table_5_sts", "row": "BERT"}))
    with pytest.raises(SystemExit) as exit_:
        EvaluationTables().on_multirun_end(config_of(folder))
    err = capsys.readouterr().err
    assert exit_.value.code == 1
    assert err.startswith("error: paper.row=BERT: choose one of") and err.count("\n") == 1


def test_a_training_sweep_ends_with_the_table_of_its_report(write_sweep, job, capsys):
    jobs = [job(0.7 + seed / 100, seed=seed, row=row) for row in (0.1, 0.2) for seed in (0, 1)]
    SweepTable().on_multirun_end(config_of(write_sweep("s", *jobs, table="table_3_dropout", size="mini")))
    printed = capsys.readouterr()
    assert "Table 3 of the paper, dropout, size=mini: Spearman x 100" in printed.out
    assert [row[:3] for row in rows_of(printed.out)][3] == ["0.1", "* 70.50 ± 0.71 (2)", "82.5"]
    assert not printed.err


def test_a_training_sweep_says_where_it_is_and_what_draws_it(write_sweep, job, capsys):
    config = config_of(write_sweep("s", job(0.7)))
    SweepTable().on_multirun_start(config)
    folder = config.hydra.sweep.dir
    told = f"sweep in {folder}; with hydra.sweep.dir={folder} the same command goes on where this one stops\n"
    assert capsys.readouterr().out == told
    SweepTable().on_multirun_end(config)
    assert capsys.readouterr().out.endswith(f"figure and files: simcse report {folder}\n")


def test_a_training_sweep_of_two_tables_has_both(write_sweep, job, capsys):
    folder = write_sweep("s", job(0.7, row=0.1), job(0.8, row="none"), table="table_3_dropout")
    other = json.loads((folder / "1" / "results.json").read_text())
    other["sweep"]["table"] = "table_7_hard_negative"
    (folder / "1" / "results.json").write_text(json.dumps(other))
    SweepTable().on_multirun_end(config_of(folder))
    printed = capsys.readouterr().out
    assert "Table 3 of the paper" in printed and "Table 7 of the paper" in printed


def test_a_training_job_that_failed_is_told_and_makes_the_sweep_fail(write_sweep, job, capsys):
    folder = write_sweep("s", job(0.7, options={"a": 1}), job(options={"a": 2}))
    with pytest.raises(SystemExit) as exit_:
        SweepTable().on_multirun_end(config_of(folder))
    printed = capsys.readouterr()
    assert exit_.value.code == 1 and printed.err == "error: 1 of 2 jobs failed: 1\n"
    assert [row[:2] for row in rows_of(printed.out)] == [["1", "70.00 (1)"], ["2", "–"]]
    assert "failed, or not at their end: 1 (a=2)" in printed.out


def test_training_jobs_that_all_failed_have_no_table(write_sweep, job, capsys):
    with pytest.raises(SystemExit) as exit_:
        SweepTable().on_multirun_end(config_of(write_sweep("s", job(), job())))
    printed = capsys.readouterr()
    assert exit_.value.code == 1 and (printed.out, printed.err) == ("", "error: 2 of 2 jobs failed: 0, 1\n")


def test_a_training_job_whose_results_are_damaged_is_told_in_one_line(write_sweep, job, capsys):
    folder = write_sweep("s", job(0.7), job(0.8))
    (folder / "1" / "results.json").write_text("{")
    with pytest.raises(SystemExit) as exit_:
        SweepTable().on_multirun_end(config_of(folder))
    err = capsys.readouterr().err
    assert exit_.value.code == 1
    assert err.startswith(f"error: {folder}/1/results.json is damaged") and err.count("\n") == 1


def test_a_training_job_that_could_not_measure_a_task_makes_the_sweep_fail(write_sweep, job, capsys):
    folder = write_sweep("s", job(0.7, failed={"TREC": "no file"}))
    with pytest.raises(SystemExit) as exit_:
        SweepTable().on_multirun_end(config_of(folder))
    assert exit_.value.code == 1 and "failed: TREC: no file (0)" in capsys.readouterr().out


def test_a_sweep_without_jobs_prints_nothing(tmp_path, capsys):
    SweepTable().on_multirun_end(config_of(tmp_path))
    assert capsys.readouterr() == ("", "")
