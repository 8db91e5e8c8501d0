"""`simcse report --html`: the page of a real run, and its error messages."""

import csv
import json

import pytest
from scipy.stats import spearmanr

from simcse_pl.__main__ import main
from simcse_pl.cli.report_neighbours import encoder_before_training
from simcse_pl.data.senteval.sts_sets import load_sample
from simcse_pl.reports.html.runs import read_runs
from tests.conftest import SENTENCES, tiny
from tests.reports.html.conftest import Page


@pytest.mark.browser
def test_the_page_of_a_real_run_shows_its_results(
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
    _check_encoder_before_training(run, results)


def _check_encoder_before_training(folder, results):
    """Check that the rebuilt encoder, with its new head, has the score on dev from before training."""
    (run,), _ = read_runs({"mine": folder})
    encoder = encoder_before_training(run.job)
    pairs = load_sample("dev").pairs
    first, second = (encoder.encode([getattr(p, side) for p in pairs], normalize=True) for side in ("first", "second"))
    score = spearmanr((first * second).sum(dim=1).numpy(), [pair.score for pair in pairs]).statistic
    assert score == pytest.approx(results["before"]["spearman"], abs=2e-4)


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run the command in this process and return its exit status and standard error."""

    def run(*arguments, output=tmp_path / "page.html"):
        monkeypatch.setattr("sys.argv", ["simcse", "report", *map(str, arguments), "--html", str(output)])
        with pytest.raises(SystemExit) as error:
            main()
        assert not (tmp_path / "page.html").exists()
        return error.value.code, capsys.readouterr().err.strip()

    return run


def test_errors_are_one_line_and_write_nothing(run, write_sweep, job, write_curves, tmp_path, monkeypatch):
    sweep, one = write_sweep("s", job(0.7)), write_curves(tmp_path / "one")
    (tmp_path / "folder").mkdir()
    mistakes = {
        "--labels: 1 for 2 folders": (sweep, one, "--labels", "a"),
        "two folders are called a": (sweep, one, "--labels", "a", "a"),
        "two folders are called ": (one, one),
        "no metrics.csv in ": (tmp_path / "missing",),
        "none.txt": (sweep, "--sentences", tmp_path / "none.txt"),
        "cannot write ": (sweep,),
    }
    for message, arguments in mistakes.items():
        output = tmp_path / ("folder" if message == "cannot write " else "page.html")
        status, err = run(*arguments, output=output)
        assert status == 2
        assert err.startswith("error: ") and message in err and "\n" not in err
    monkeypatch.setitem(__import__("sys").modules, "plotly", None)
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    assert run(sweep)[1] == "error: --html needs Plotly: pip install plotly"


def test_options_of_tables_are_rejected_with_html(run, tmp_path):
    assert run()[0] == 2
    assert run(tmp_path, "--aggregation", "all") == (
        2,
        "error: --html writes one page: leave out --output and --aggregation",
    )
