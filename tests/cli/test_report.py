"""`simcse report`: tables, figures and files."""

import json

import pytest


@pytest.fixture
def run(command, tmp_path):
    def run(*arguments, **options):
        return command("report", *arguments, "--output", tmp_path / "report", **options)

    return run


def test_encoders_runs_and_sweeps_have_tables_and_figures(
    run, write_sweep, job, write_results, write_run, make_report, bert, tmp_path
):
    folders = [
        write_sweep("grid", job(0.7, options={"a": 1}), job(0.8, options={"a": 2})),
        write_results("encoder", make_report("x", **bert)),
        write_sweep("six", job(0.7, row="CLS with MLP", column="supervised"), table="table_6_pooling"),
        write_run(),
        write_sweep("six too", job(0.7, row="CLS with MLP", column="unsupervised"), table="table_6_pooling"),
    ]
    labels = ["my grid", "mine", "c", "mine", "e"]  # a run may be named as an evaluation
    out = run(*folders, "--labels", *labels, "--aggregation", "wmean").out
    output = tmp_path / "report"
    assert sorted(line for line in out.splitlines() if line.startswith(str(output))) == sorted(
        map(str, output.iterdir())
    )
    files = {file.name for file in output.iterdir()}
    assert {"sweep_1.md", "sweep_1.png", "sweep_2.csv", "sweep_2.svg", "sts.tex", "training_paths.svg"} <= files
    assert "my grid: Spearman x 100" in out and "weighted by size" in out and "paper, Table B.3" in out
    assert json.loads((output / "sts.json").read_text())["rows"][0]["encoder"] == "mine"
    assert "mine" in (output / "training_paths.svg").read_text()
    assert (output / "sweep_2.md").read_text().count("| CLS with MLP  ") == 2


def test_a_run_without_alignment_has_a_table_of_its_scores(run, write_sweep, job):
    folder = write_sweep("s", job(0.0, monitor="mrr", best={"mrr": 0.5}, before={"mrr": 0.25}, test={})) / "0"
    (folder / "metrics.csv").write_text("step,val/mrr\n0,0.25\n")
    out = run(folder).out
    assert "50.00" in out and "25.00" in out


def test_mistakes_end_with_one_line_and_leave_no_file(run, write_sweep, job, tmp_path):
    sweep, other = write_sweep("sweep", job(0.7)), write_sweep("other", job(0.8))
    for labels in (("a", "a"), ("a",)):
        assert "give one per folder by --labels" in run(sweep, other, "--labels", *labels, status=2).err
    assert not (tmp_path / "report").exists()


def test_a_page_is_written(command, write_sweep, job, tmp_path):
    output = tmp_path / "page.html"
    folder = write_sweep("s", job(0.7), job(0.8, seed=1))
    assert command("report", folder, "--html", output).out == f"{output}\n"
    assert f"{folder}: Spearman x 100" in output.read_text(encoding="utf-8")
