"""Training, evaluation and reports on one's own validation and test files."""

import json

import pandas
import pytest

from simcse_pl.evaluation.evaluators import Evaluator
from tests.conftest import tiny


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


def test_an_evaluator_of_ones_own_and_a_metric_that_is_best_when_low(
    train, run_command, command, sentences, make_model, tmp_path
):
    (tmp_path / "conf" / "evaluators").mkdir(parents=True)
    (tmp_path / "conf" / "evaluators" / "mine.yaml").write_text(
        "# @package _global_\nmonitor: val/distance\nevaluators:\n  mine:\n"
        f"    _target_: {__name__}.Distance\n    _partial_: true\n    power: 2\n"
    )
    mine = [f"--config-dir={tmp_path}/conf", "evaluators=mine"]
    given = [*mine, "data=text", f"data.train={sentences}", *tiny(make_model("bert")), "optimizer.lr=0.01"]
    _, folder = train(*given, f"data.validation={sentences}", "callbacks.best.mode=min", "logger=csv")
    best = json.loads((folder / "results.json").read_text())["best"]
    curves = pandas.read_csv(folder / "metrics.csv")
    assert best["distance"] == curves.loc[curves["step"] > 0, "val/distance"].min() and best["nothing"] is None
    test = [mine[0], "evaluators=[sts,mine]", f"+evaluators.mine.test={sentences}", "data.test=null", "tasks=[]"]
    run_command("evaluate.py", *test, f"encoder={folder}/encoder", f"hydra.run.dir={tmp_path}/measured")
    measured = json.loads((tmp_path / "measured" / "results.json").read_text())["own"]
    assert measured["data"] == "Distance" and measured["metrics"]["nothing"] is None
    assert measured["metrics"]["distance"] == pytest.approx(best["distance"], rel=1e-4)
    out = command("report", tmp_path / "measured", folder, "--labels", "own", "run", "--output", tmp_path / "r").out
    assert "own, run: distance, lower is better" in out
