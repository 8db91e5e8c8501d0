"""The shape of results.json, and the names of metrics."""

import json
import math

import pytest

from simcse_pl.results import (
    TrainingRun,
    decimals,
    heading,
    is_of_file,
    logged,
    metrics_of_split,
    read_shape,
    scale_note,
    split_and_metric,
)
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import write_json
from tests.lab.invented import job


@pytest.mark.parametrize(("sweep", "more"), [(None, {}), ({"table": "seeds", "row": 2}, {"failed": {"CR": "no file"}})])
def test_what_is_read_is_written_again(sweep, more, tmp_path):
    """Without keys for what the file does not have; a missing number is null."""
    about, results = job(0.75, test={"spearman": None}, precision="32-true", sts={"STS12": 0.5}, **more)
    (tmp_path / "first").write_text(json.dumps(about | {"sweep": sweep} | results))
    run = read_shape(TrainingRun, tmp_path / "first")
    assert run.best_score == 0.75 and math.isnan(run.test["spearman"])
    write_json(tmp_path / "second", run.content())
    assert json.loads((tmp_path / "second").read_text()) == about | {"sweep": sweep} | results
    (tmp_path / "first").write_text(json.dumps(about | results | {"best": {"spearman": "high"}}))
    with pytest.raises(UserError, match="first is not a results file: best.spearman: Input should be a valid number"):
        read_shape(TrainingRun, tmp_path / "first")


def test_numbers_have_two_digits_and_headings_say_which_values_are_better():
    values = {(): 3, (0.0, math.nan): 3, (2.5, 9): 3, (0.004, -1): 4, (1e-9,): 6}
    assert {given: decimals("loss", given) for given in values} == values
    assert decimals("german/recall@5", [1e-9]) == 2
    headings = [heading(metric, direction=True) for metric in ("german/spearman", "recall@5", "loss", "trace")]
    assert headings == ["german/Spearman ↑", "recall@5 ↑", "loss ↓", "trace"]
    assert scale_note("german/spearman", "loss", "mrr@10") == "Spearman, mrr x 100" and scale_note("loss") == ""


def test_a_metric_of_a_file_has_a_mean():
    metrics = ["mrr", "german/mrr", "reranking/map", "retrieval/map", "retrieval/german/map"]
    assert [name for name in metrics if is_of_file(name, metrics)] == ["german/mrr", "retrieval/german/map"]


def test_a_metric_in_curves_has_its_stage_before_its_name():
    names = {"val/german/recall@5": ("validation", "german/recall@5"), "test/mrr": ("test", "mrr")}
    names["geometry/trace"] = ("validation", "trace")
    assert {name: split_and_metric(name) for name in names} == names
    assert [logged(metric, split) for split, metric in names.values()] == [*names]
    curves = dict.fromkeys([*names, "train/loss", "epoch"], 0.5)
    assert metrics_of_split(curves) == {"german/recall@5": 0.5, "trace": 0.5}
    assert metrics_of_split(curves, "test") == {"mrr": 0.5}
