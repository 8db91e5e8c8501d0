"""`python -m simcse_pl.report`, from the folders to the files."""

import json

import pytest

from simcse_pl.report import __main__ as command


def test_tables_are_printed_and_everything_is_saved(run_command, write_results, write_run, make_report, bert, tmp_path):
    one = write_results("one", make_report("one", **bert))
    two = write_results("two", make_report("two", seed=2))
    output = tmp_path / "report"
    done = run_command("-m", "simcse_pl.report", one, two / "results.json", write_run(), "--output", output)
    for expected in ("STS, test: Spearman x 100", "paper, Table 5: BERT-base", "39.70", "59.00", "61.00", "Transfer"):
        assert expected in done.stdout
    assert done.stderr == ""
    listed = [line for line in done.stdout.splitlines() if line.startswith(str(output))]
    assert sorted(listed) == sorted(map(str, output.iterdir()))
    assert {file.rpartition("/")[2] for file in listed} >= {"sts.md", "sts.csv", "sts.json", "sts.tex", "spectra.png"}
    assert {"training_paths.svg", "alignment_uniformity.svg", "similarities.svg"} <= {f.name for f in output.iterdir()}
    assert json.loads((output / "sts.json").read_text())["rows"][2]["Avg"] == pytest.approx(61)


def test_a_mistake_is_one_line_and_status_2(run_command, tmp_path):
    done = run_command("-m", "simcse_pl.report", tmp_path / "missing", status=2)
    assert done.stdout == ""
    assert done.stderr.startswith("error: no file or folder ")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """The command in this process: its exit status and what it says on standard error."""

    def run(*arguments):
        output = tmp_path / "report"
        monkeypatch.setattr("sys.argv", ["report", *map(str, arguments), "--output", str(output)])
        try:
            command.main()
        except SystemExit as error:
            assert not output.exists()
            return error.code, capsys.readouterr().err
        return 0, capsys.readouterr().out

    return run


def test_labels_are_given_in_the_folders_order(run, write_results, write_run, make_report, tmp_path):
    folders = [write_results("a", bare := make_report("x", geometry=None)), write_run(), write_results("b", bare)]
    status, _ = run(*folders, "--labels", "first", "my run", "second")
    assert status == 0
    rows = json.loads((tmp_path / "report" / "sts.json").read_text())["rows"]
    assert [row["encoder"] for row in rows] == ["first", "second"]
    assert "my run" in (tmp_path / "report" / "training_paths.svg").read_text()


def test_the_aggregation_is_an_option(run, write_results, make_report):
    status, out = run(write_results("a", make_report("x", geometry=None)), "--aggregation", "wmean")
    assert status == 0
    assert "weighted by size" in out


def test_a_run_alone_has_a_figure_and_no_table(run, write_run, tmp_path):
    assert run(write_run())[0] == 0
    assert {file.name for file in (tmp_path / "report").iterdir()} == {"training_paths.png", "training_paths.svg"}


def test_mistakes_are_told_in_one_line_and_leave_nothing(run, write_results, make_report, tmp_path):
    good, same = (write_results(name, make_report("x")) for name in ("good", "same"))
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "results.json").write_text('{"label": ')
    named = write_results("named", make_report("y", paper={"table": "table_5_sts", "row": "BERT"}))
    empty = write_results("empty", {"label": "z"})
    mistakes = {
        "--labels: 1 for 2 folders": (good, same, "--labels", "a"),
        "two results have the label x": (good, same),
        "is damaged, or no JSON": (good, tmp_path / "cut"),
        "paper.row=BERT: choose one of": (named,),
        "nothing was measured": (empty,),
        "neither results.json nor metrics.csv": (tmp_path,),
    }
    for message, arguments in mistakes.items():
        status, err = run(*arguments)
        assert status == 2
        assert err.startswith("error: ")
        assert message in err
        assert err.count("\n") == 1


def test_an_unknown_aggregation_and_no_folder_are_argparses_to_tell(run, tmp_path):
    assert run(tmp_path, "--aggregation", "median")[0] == 2
    assert run()[0] == 2
