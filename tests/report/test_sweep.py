"""What a multirun ends with: one table of all its jobs, and an exit status that tells of those that failed."""

import json

import pytest
from omegaconf import OmegaConf

from simcse_pl.report.sweep import EvaluationTables, SweepTable


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
    assert exit_.value.code == 1 and printed.err == "error: failed jobs: 0, 2\n"
    assert rows_of(printed.out)[0][0] == "mine"


def test_a_sweep_whose_jobs_all_failed_has_no_table(sweep, capsys):
    with pytest.raises(SystemExit) as exit_:
        EvaluationTables().on_multirun_end(config_of(sweep(None, None)))
    printed = capsys.readouterr()
    assert exit_.value.code == 1 and (printed.out, printed.err) == ("", "error: failed jobs: 0, 1\n")


def test_a_job_that_could_not_measure_a_task_makes_the_sweep_fail(sweep, make_report, capsys):
    whole = make_report("whole", sts=("STS-B", "STS14"))
    part = make_report("part", sts=("STS-B",), failed={"STS14": "no folder STS14"})
    with pytest.raises(SystemExit) as exit_:
        EvaluationTables().on_multirun_end(config_of(sweep(whole, part)))
    printed = capsys.readouterr()
    assert exit_.value.code == 1
    assert [row[0] for row in rows_of(printed.out)[:2]] == ["whole", "part"]
    assert "failed: STS14: no folder STS14 (part)" in " ".join(printed.out.split())


@pytest.mark.parametrize("failed", [False, True])
def test_a_training_sweep_fails_where_a_job_did(failed, sweep, capsys):
    scores = {"spearman": 0.7, "alignment": 0.25, "uniformity": -2.0}
    report = dict.fromkeys(("before", "best", "test"), scores)
    folder = sweep(report, None if failed else report)
    if failed:
        with pytest.raises(SystemExit, match="1"):
            SweepTable().on_multirun_end(config_of(folder))
    else:
        SweepTable().on_multirun_end(config_of(folder))
    printed = capsys.readouterr()
    assert printed.err == ("error: failed jobs: 1\n" if failed else "")
    assert [row[1] for row in rows_of(printed.out)] == ["70.00", "failed" if failed else "70.00"]
