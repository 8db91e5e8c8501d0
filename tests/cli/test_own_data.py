"""Training, evaluation and reports on one's own validation and test files."""

import json

import pandas
import pytest

from simcse_pl.evaluation.evaluators import Evaluator
from tests.conftest import SENTENCES, tiny
from tests.offline_wandb import offline_runs

QUERIES = [(f"{one} Why?", one) for one in SENTENCES] + [("Nobody answered. Why?", "The moon is larger.")]


class Distance(Evaluator):
    """The mean distance of the embeddings of a file of sentences from their mean; lower is better here."""

    def __init__(self, validation=None, test=None, power=1):
        self.files = {"validation": validation, "test": test}
        self.power = power

    def sentences(self, split):
        file = self.files[split]
        return open(file).read().splitlines() if file else []

    def __call__(self, encode, split):
        vectors = encode(self.sentences(split))
        distance = (vectors - vectors.mean(dim=0)).norm(dim=1).pow(self.power).mean()
        return {"distance": float(distance), "nothing": float("nan")}


@pytest.fixture
def given(sentences, make_model):
    """The options of a small run."""
    return ["data=text", f"data.train={sentences}", *tiny(make_model("bert"))]


@pytest.fixture
def evaluate(run_command, tmp_path):
    """Run evaluate.py; return what it printed and its results."""

    def run(*arguments, folder="measured"):
        done = run_command("evaluate.py", *arguments, f"hydra.run.dir={tmp_path}/{folder}")
        return done.stdout, json.loads((tmp_path / folder / "results.json").read_text())

    return run


def test_a_run_on_queries(train, evaluate, command, given, write, tmp_path):
    dev, test = write(*QUERIES), write(*QUERIES[2:], name="test.tsv")
    own = ["evaluators=retrieval", "evaluators.retrieval.top_k=[1,3]", f"data.test={test}"]
    done, folder = train(*given, *own, f"data.validation={dev}")
    results = json.loads((folder / "results.json").read_text())
    assert (results["monitor"], results["mode"], results["validation"]) == ("mrr", "max", "dev.tsv")
    assert set(results["test"]) == {"recall@1", "recall@3", "mrr", "ndcg@3"}
    title = "dev.tsv, tested on test.tsv (mrr, recall, ndcg x 100)"
    for expected in (title, "mrr ↑", "recall@3", f"{100 * results['best']['mrr']:.2f}"):
        assert expected in done.stdout
    assert f"{100 * results['test']['ndcg@3']:.2f}" in done.stdout and "Spearman" not in done.stdout
    (run,) = offline_runs(folder)
    assert run.summary["val/mrr"] == pytest.approx(results["best"]["mrr"])
    assert run.summary["best_step"] == results["best_step"]

    printed, measured = evaluate(f"encoder={folder}/encoder", *own, "tasks=[]", "wandb.mode=offline")
    assert measured["own"]["data"] == "test.tsv" and measured["own"]["metrics"] == pytest.approx(results["test"])
    assert "Own data on test.tsv (recall, mrr, ndcg x 100)" in printed
    assert offline_runs(folder)[-1].summary["evaluation/test.tsv mrr"] == pytest.approx(results["test"]["mrr"])
    out = command("report", tmp_path / "measured", folder, "--labels", "own", "run", "--output", tmp_path / "r").out
    assert "Own data on test.tsv" in out and f"run: {title}" in out
    (row,) = json.loads((tmp_path / "r" / "own_data.json").read_text())["rows"]
    assert row["mrr ↑"] == pytest.approx(100 * results["test"]["mrr"])


def test_an_evaluator_of_ones_own_and_a_metric_that_is_best_when_low(train, evaluate, given, sentences, tmp_path):
    (tmp_path / "conf" / "evaluators").mkdir(parents=True)
    (tmp_path / "conf" / "evaluators" / "mine.yaml").write_text(
        "# @package _global_\nmonitor: val/distance\nevaluators:\n  mine:\n"
        f"    _target_: {__name__}.Distance\n    _partial_: true\n    power: 2\n"
    )
    mine = [f"--config-dir={tmp_path}/conf", "evaluators=mine"]
    how = [*mine, f"data.validation={sentences}", "callbacks.best.mode=min", "logger=csv"]
    _, folder = train(*given, *how, "optimizer.lr=0.01")
    best = json.loads((folder / "results.json").read_text())["best"]
    curves = pandas.read_csv(folder / "metrics.csv")
    assert best["distance"] == curves.loc[curves["step"] > 0, "val/distance"].min() and best["nothing"] is None
    own = [*mine[:1], "evaluators=[sts,mine]", f"+evaluators.mine.test={sentences}", "data.test=null", "tasks=[]"]
    _, measured = evaluate(f"encoder={folder}/encoder", *own)
    assert measured["own"]["data"] == "Distance" and measured["own"]["metrics"]["nothing"] is None
    assert measured["own"]["metrics"]["distance"] == pytest.approx(best["distance"], rel=1e-4)
