"""`simcse report`: tables, figures and files."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from tests.lab.invented import BERT, job, make_report

MRR = {"a": [0.5, 0.6], "b": [0.7, 0.75, 0.8], "c": [0.65]}  # of seeds


@pytest.fixture
def retrieval(write_sweep, write_run):
    """The folders of two sweeps over seeds, one of which varies an option that names a file, and of a single run."""

    def of(mrr, seed, **options):
        scores = {"mrr": mrr, "recall@5": mrr + 0.1, "trace": 9.0, "de/recall@5": 0.5}
        before = dict.fromkeys(scores, 0.4)
        about = {"monitor": "mrr", "before": before, "best": scores, "test": scores, "validation": "queries.tsv"}
        return job(mrr, seed=seed, options={"data.train": "/home/me/my data/pairs.csv", **options}, **about)

    folders = {"c": write_run("c")}
    for name, options in (("a", {}), ("b", {"method": "gist"})):
        folders[name] = write_sweep(name, *(of(mrr, seed, **options) for seed, mrr in enumerate(MRR[name])))
    about, scores = of(*MRR["c"], 0)
    (folders["c"] / "results.json").write_text(json.dumps(about | {"sweep": None} | scores))
    return [folders[name] for name in MRR]


def test_sweeps_and_runs_are_rows_of_one_table_and_one_figure(command, retrieval, tmp_path):
    out = command("report", *retrieval, "--labels", *MRR, "--output", tmp_path / "report").out
    assert "a, b, c: mrr x 100" in out and "other metrics: on dev (recall x 100)" in out and "/home/me" not in out
    files = {file.name for file in (tmp_path / "report").iterdir()}
    figures, endings = ("comparison", "curves", "training_paths"), ("png", "svg", "pdf")
    drawn = {f"{name}.{ending}" for name in figures for ending in endings}
    assert files == {"comparison.md", "comparison.csv", "comparison.tex", "comparison_seeds.csv", *drawn}
    table = pd.read_csv(tmp_path / "report" / "comparison.csv")
    assert table["run"].tolist() == [*MRR] and "method" not in table and "de/recall@5" not in table
    for score, more in (("dev", 0), ("test", 0), ("recall@5", 0.1)):
        np.testing.assert_allclose(table[score], [100 * (np.mean(own) + more) for own in MRR.values()])
        np.testing.assert_allclose(table[f"{score} std"][:2], [100 * np.std(MRR[name], ddof=1) for name in "ab"])


def test_an_evaluation_on_the_dev_set_is_a_row_and_rows_with_other_numbers_of_seeds_have_no_best(
    command, retrieval, write_results, tmp_path
):
    own = {"data": "queries.tsv", "metrics": {"mrr": 0.4, "recall@5": 0.45}}
    before = write_results("before", make_report("x", sts=(), transfer=(), geometry=None, retrieval=None, own=own))

    def compared(*folders, labels):
        command("report", before, *folders, "--labels", *labels, "--output", tmp_path / "report")
        rows = (tmp_path / "report" / "comparison.md").read_text().splitlines()[4:][: len(labels)]
        return [[cell.strip() for cell in row.split("|")[1:]][:2] for row in rows], (tmp_path / "report").iterdir()

    rows, files = compared(retrieval[0], retrieval[2], labels=("before", "a", "c"))
    assert rows == [["before", "40.00"], ["a", "55.00 ± 7.07 (2)"], ["c", "65.00 (1)"]]
    assert {file.stem for file in files} == {"comparison", "comparison_seeds", "curves", "training_paths"}
    rows, _ = compared(retrieval[2], labels=("c", "c"))  # a label of an encoder and of a run
    assert rows == [["c, evaluated", "40.00"], ["c", "65.00 (1)"]]


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
    assert {"comparison_1.md", "comparison_1.png", "sweep_2.csv", "sweep_2.svg", "sts.tex", "curves.svg"} <= files
    assert "my grid, my run: Spearman x 100" in out and "weighted by size" in out and "paper, Table B.3" in out
    assert "\nmine," in (output / "sts.csv").read_text()
    assert "my run" in (output / "training_paths.svg").read_text()
    assert (output / "sweep_2.md").read_text().count("| CLS with MLP ") == 2
    command("report", folders[3], *to)
    assert "| best, step 40 of 60 | dev " in (output / "run.md").read_text()
    runs = folders[2] / "0", folders[4] / "0"
    for folder in runs:
        shutil.copy(folders[3] / "metrics.csv", folder)
    command("report", *runs, "--labels", "A", "B", "--output", tmp_path / "runs")
    assert "\n| A " in (rows := (tmp_path / "runs" / "comparison.md").read_text()) and "\n| B " in rows
    command("report", folders[0])  # a single one has its own
    assert {"sweep.md", "sweep.png"} <= {file.name for file in folders[0].iterdir()}
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "metrics.csv").write_text("epoch,step,train/loss\n0,1,0.5\n")
    assert "nothing to report" in command("report", *to, tmp_path / "plain", status=2).err
    assert "--wandb: no sweep among" in command("report", *to, folders[1], "--wandb", status=2).err
