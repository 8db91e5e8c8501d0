"""`simcse report`, from the folders to the files."""

import json

import pytest

from simcse_pl.__main__ import main


def test_tables_are_printed_and_everything_is_saved(run_command, write_results, write_run, make_report, bert, tmp_path):
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
def run(monkeypatch, capsys, tmp_path):
    """Run the command in this process and return its exit status and its output."""

    def run(*arguments):
        output = tmp_path / "report"
        monkeypatch.setattr("sys.argv", ["simcse", "report", *map(str, arguments), "--output", str(output)])
        try:
            main()
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


def test_aggregation_option(run, write_results, make_report):
    status, out = run(write_results("a", make_report("x", geometry=None)), "--aggregation", "wmean")
    assert status == 0
    assert "weighted by size" in out


def test_a_run_alone_has_a_figure_and_no_table(run, write_run, tmp_path):
    assert run(write_run())[0] == 0
    assert {file.name for file in (tmp_path / "report").iterdir()} == {"training_paths.png", "training_paths.svg"}


def test_a_sweep_has_its_table_in_four_forms_and_a_figure(run, write_sweep, job, tmp_path):
    jobs = [job(0.7 + seed / 100, seed=seed, row=row) for row in (0.1, "fixed 0.1") for seed in range(3)]
    folder = write_sweep("s", *jobs, table="table_3_dropout", size="mini")
    status, out = run(folder)
    assert status == 0
    files = {file.name for file in (tmp_path / "report").iterdir()}
    assert files == {f"sweep.{ending}" for ending in ("md", "csv", "json", "tex", "png", "svg")}
    assert all(f"{tmp_path}/report/{file}\n" in out for file in files)
    for expected in ("Table 3 of the paper, dropout, size=mini", "71.00 ± 1.00 (3)", "82.5"):
        assert expected in out
        assert expected in (tmp_path / "report" / "sweep.md").read_text()


def test_several_sweeps_have_a_table_each_beside_encoders_and_runs(
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
    status, out = run(*folders, "--labels", "my grid", "my encoder", "c", "my run", "e", "f")
    assert status == 0
    files = {file.name for file in (tmp_path / "report").iterdir()}
    assert {"sweep_1.md", "sweep_1_grid.md", "sweep_1.png", "sweep_2.csv", "sweep_2.svg", "sweep_3.json"} <= files
    assert {"sts.md", "training_paths.svg"} <= files
    assert not {"sweep_3.png", "sweep_4.md", "sweep.md"} & files
    assert "my grid: Spearman x 100" in out and "my encoder" in out
    assert (tmp_path / "report" / "sweep_2.md").read_text().count("| CLS with MLP  ") == 2


def test_errors_are_one_line_and_write_nothing(run, write_results, make_report, write_sweep, job, tmp_path):
    good, same = (write_results(name, make_report("x")) for name in ("good", "same"))
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "results.json").write_text('{"label": ')
    named = write_results("named", make_report("y", paper={"table": "table_5_sts", "row": "BERT"}))
    empty = write_results("empty", {"label": "z"})
    sweep, failed = write_sweep("sweep", job(0.7)), write_sweep("all failed", job())
    evaluations = write_sweep("evaluations", job(0.7))
    (evaluations / "0" / "results.json").write_text(json.dumps(make_report("x")))
    mistakes = {
        "--labels: 1 for 2 folders": (good, same, "--labels", "a"),
        "two results have the label x": (good, same),
        "is damaged, or no JSON": (good, tmp_path / "cut"),
        "paper.row=BERT: choose one of": (named,),
        "nothing was measured": (empty,),
        "neither results.json nor metrics.csv": (tmp_path,),
        "two sweeps are called ": (sweep, sweep),
        "two sweeps are called a:": (sweep, failed, "--labels", "a", "a"),
        "no job has a results.json": (sweep, failed),
        "was written by evaluate.py": (evaluations,),
    }
    for message, arguments in mistakes.items():
        status, err = run(*arguments)
        assert status == 2
        assert err.startswith("error: ")
        assert message in err
        assert err.count("\n") == 1
