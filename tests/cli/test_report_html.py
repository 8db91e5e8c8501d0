"""`simcse report --html`: the page of a real run, and its error messages."""

import csv
import json
import sys

import pytest

from simcse_pl.cli.report_neighbours import rebuild_encoder_before_training
from simcse_pl.data.senteval.sts_sets import load_sample
from simcse_pl.evaluation.sts import evaluate_sts
from simcse_pl.reports.html.runs import read_runs
from tests.conftest import SENTENCES, tiny
from tests.reports.html.conftest import Page


@pytest.mark.browser
def test_the_page_of_a_run_shows_everything_it_measured(
    train, run_command, make_model, sentences, browser, tmp_path, monkeypatch
):
    options = ["model.head=mlp", "data.limit=32", "logger=csv", "trainer.precision=32-true"]
    _, run = train(*tiny(make_model("bert")), *options)
    output = tmp_path / "new" / "page.html"
    done = run_command("-m", "simcse_pl", "report", run, "--sentences", sentences, "--html", output)
    assert done.stdout == f"{output}\n"
    results = json.loads((run / "results.json").read_text())
    page = Page(browser, output)
    points = "return [...document.querySelectorAll('.curves')].map(c => [c.dataset.metric, c.data[0].x, c.data[0].y])"
    curves = {metric: (steps, values) for metric, steps, values in page.run(points)}
    assert {"train/loss", "val/spearman", "val/alignment", "val/uniformity", "geometry/gram_sum"} <= curves.keys()
    assert curves["train/loss"][0] == list(range(1, 17))
    with (run / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["val/spearman"]]
    steps, scores = curves["val/spearman"]
    assert steps == [int(row["step"]) for row in rows] and steps[-1] == 16
    assert scores == pytest.approx([float(row["val/spearman"]) for row in rows], abs=1e-5)
    assert scores[0] == pytest.approx(results["before"]["spearman"], abs=1e-5)
    assert max(scores[1:]) == pytest.approx(results["best"]["spearman"], abs=1e-5)  # of the trained ones
    row = page.run("return [...document.querySelector('#runs tbody tr').cells].map(c => c.textContent.trim())")
    assert f"{100 * results['test']['spearman']:.2f}" in row and str(results["best_step"]) in row
    queries = page.run("return [...document.querySelectorAll('.query h3')].map(h => h.textContent)")
    assert queries == SENTENCES[::2]
    assert page.run("return document.querySelectorAll('.query li').length") == 4 * 2 * 5
    assert page.read_logs() == ([], [])
    encoder = rebuild_encoder_before_training(read_runs({"mine": run})[0][0].job)  # new head included
    rebuilt = evaluate_sts(encoder.encode, load_sample("dev")).all.spearman
    assert rebuilt == pytest.approx(results["before"]["spearman"], abs=2e-4)


def test_mistakes_end_with_one_line_and_leave_no_file(command, write_sweep, job, write_curves, tmp_path, monkeypatch):
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
