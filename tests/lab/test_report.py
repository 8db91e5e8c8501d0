"""`simcse report`: tables, figures and files."""

import json

from tests.lab.invented import BERT, job, make_report


def test_encoders_runs_and_sweeps_have_tables_and_figures(command, write_sweep, write_results, write_run, tmp_path):
    folders = [
        write_sweep("grid", job(0.7, options={"a": 1}), job(0.8, options={"a": 2})),
        write_results("encoder", make_report("x", **BERT)),
        write_sweep("six", job(0.7, row="CLS with MLP", column="supervised"), table="table_6_pooling"),
        write_run(),
        write_sweep("six too", job(0.7, row="CLS with MLP", column="unsupervised"), table="table_6_pooling"),
    ]
    of_run, scores = job(0.7)
    (folders[3] / "results.json").write_text(json.dumps(of_run | {"sweep": None} | scores))
    labels = ["my grid", "mine", "c", "my run", "e"]
    to = ["--output", tmp_path / "report"]
    out = command("report", *to, *folders, "--labels", *labels, "--aggregation", "wmean").out
    output = tmp_path / "report"
    files = {file.name for file in output.iterdir()}
    assert files == {*out.splitlines()[-1].removeprefix(f"in {output}: ").split(", ")}
    assert {"sweep_1.md", "sweep_1.png", "sweep_2.csv", "sweep_2.svg", "sts.tex", "training_paths.svg"} <= files
    assert "my grid: Spearman x 100" in out and "weighted by size" in out and "paper, Table B.3" in out
    assert "\nmine," in (output / "sts.csv").read_text()
    assert "my run" in (output / "training_paths.svg").read_text()
    assert "| best, step 40 of 60 | dev " in (output / "run_1.md").read_text()
    assert (output / "sweep_2.md").read_text().count("| CLS with MLP  ") == 2
    command("report", folders[0])  # a single one has its own
    assert {"sweep.md", "sweep.png"} <= {file.name for file in folders[0].iterdir()}
    assert "--wandb: no sweep among" in command("report", *to, folders[1], "--wandb", status=2).err
