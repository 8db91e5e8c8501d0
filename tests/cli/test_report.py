"""`simcse report`: tables, figures and files, and its error messages."""

import json
import sys

import pytest


def test_tables_are_printed_and_files_are_saved_and_listed(
    run_command, write_results, write_run, make_report, bert, tmp_path
):
    one = write_results("one", make_report("one", **bert))
    two = write_results("two", make_report("two", seed=2))
    output = tmp_path / "report"
    done = run_command("-m", "simcse_pl", "report", one, two / "results.json", write_run(), "--output", output)
    for expected in ("STS, test: Spearman x 100", "paper, Table 5: BERT-base", "39.70", "59.00", "61.00", "Transfer"):
        assert expected in done.stdout
    assert done.stderr == ""
    listed = [line for line in done.stdout.splitlines() if line.startswith(str(output))]
    assert sorted(listed) == sorted(map(str, output.iterdir()))
    assert {file.rpartition("/")[2] for file in listed} >= {"sts.md", "sts.csv", "sts.json", "sts.tex", "spectra.png"}
    assert {"training_paths.svg", "alignment_uniformity.svg", "similarities.svg"} <= {f.name for f in output.iterdir()}
    assert json.loads((output / "sts.json").read_text())["rows"][2]["Avg"] == pytest.approx(61)


@pytest.fixture
def run(command, tmp_path):
    def run(*arguments, **options):
        return command("report", *arguments, "--output", tmp_path / "report", **options)

    return run


def test_labels_are_in_the_order_of_the_folders(run, write_results, write_run, make_report, tmp_path):
    folders = [write_results("a", bare := make_report("x", geometry=None)), write_run(), write_results("b", bare)]
    out = run(*folders, "--labels", "first", "my run", "second", "--aggregation", "wmean").out
    assert "weighted by size" in out
    rows = json.loads((tmp_path / "report" / "sts.json").read_text())["rows"]
    assert [row["encoder"] for row in rows] == ["first", "second"]
    assert "my run" in (tmp_path / "report" / "training_paths.svg").read_text()


def test_several_sweeps_have_tables_of_their_own_beside_encoders_and_runs(
    run, write_sweep, job, write_results, write_run, make_report, tmp_path
):
    grid = [job(0.7, options={"a": a, "b": b}) for a in (1, 2) for b in (1, 2)]
    folders = [
        write_sweep("grid", *grid),
        write_results("encoder", make_report("e", geometry=None)),
        write_sweep("six", job(0.7, row="CLS with MLP", column="supervised"), table="table_6_pooling"),
        write_run(),
        write_sweep("six too", job(0.7, row="CLS with MLP", column="unsupervised"), table="table_6_pooling"),
        write_sweep("broken", job(float("nan"))),
    ]
    out = run(*folders, "--labels", "my grid", "my encoder", "c", "my run", "e", "f").out
    files = {file.name for file in (tmp_path / "report").iterdir()}
    assert {"sweep_1.md", "sweep_1_grid.md", "sweep_1.png", "sweep_2.csv", "sweep_2.svg", "sweep_3.json"} <= files
    assert {"sts.md", "training_paths.svg"} <= files
    assert not {"sweep_3.png", "sweep_4.md", "sweep.md"} & files
    assert "my grid: Spearman x 100" in out and "my encoder" in out
    assert (tmp_path / "report" / "sweep_2.md").read_text().count("| CLS with MLP  ") == 2


def test_mistakes_end_with_one_line_and_leave_no_file(run, write_results, write_sweep, job, tmp_path):
    sweep, other = write_sweep("sweep", job(0.7)), write_sweep("other", job(0.8))
    mistakes = {
        "nothing was measured": (write_results("empty", {"label": "z"}),),
        f"two sweeps have the label {sweep}": (sweep, sweep),
        "two sweeps have the label a:": (sweep, other, "--labels", "a", "a"),
    }
    for message, arguments in mistakes.items():
        assert message in run(*arguments, status=2).err
    assert not (tmp_path / "report").exists()


def test_mistakes_with_html_end_with_one_line_and_leave_no_file(
    command, write_sweep, job, write_curves, tmp_path, monkeypatch
):
    sweep, one = write_sweep("s", job(0.7)), write_curves(tmp_path / "one")
    (tmp_path / "folder").mkdir()
    mistakes = {
        "two folders have the label a": (sweep, one, "--labels", "a", "a"),
        "two folders have the label ": (one, one),
        "none.txt": (sweep, "--sentences", tmp_path / "none.txt"),
        "leave out --output and --aggregation": (sweep, "--aggregation", "all"),
        "cannot write ": (sweep,),
    }
    for message, arguments in mistakes.items():
        output = tmp_path / ("folder" if message == "cannot write " else "page.html")
        assert message in command("report", *arguments, "--html", output, status=2).err
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    assert "pip install plotly" in command("report", sweep, "--html", tmp_path / "page.html", status=2).err
    assert not (tmp_path / "page.html").exists()
