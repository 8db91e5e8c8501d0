"""Curves as the page draws them."""

import io

import pandas as pd
import pytest

from simcse_pl.reports.html.curves import curves_of, metric_groups
from simcse_pl.results.trajectory import read_curves


def of(text):
    return curves_of(pd.read_csv(io.StringIO(text)).astype(float))


def test_curves_are_grouped_by_prefix_with_optimizer_steps(write_curves, tmp_path):
    found = curves_of(read_curves(write_curves(tmp_path / "run", steps=6, val_every=3)))
    assert list(found) == ["speed", "train", "val"]
    assert found["val"].steps == [0, 3, 6]  # the first is before training
    assert found["train"].steps == found["speed"].steps == [1, 2, 3, 4, 5, 6]
    assert list(found["train"].metrics) == ["train/loss", "train/lr"]
    assert found["val"].metrics["val/uniformity"] == pytest.approx([-1.5, -1.51639, -1.53225])


def test_a_nan_loss_is_a_gap_at_its_step():
    found = of("step,train/loss,train/lr,val/spearman\n0,,,0.5\n1,1.5,0.1,\n2,nan,0.1,\n3,inf,0.1,\n4,0.5,0.1,\n")
    assert found["train"].steps == [1, 2, 3, 4]
    assert found["train"].metrics["train/loss"] == [1.5, None, None, 0.5]
    assert found["val"].metrics == {"val/spearman": [0.5]}


def test_numbers_have_six_digits():
    found = of("step,train/loss\n0,0.123456789\n1,123456789\n2,1e-30\n")
    assert found["train"].metrics["train/loss"] == [0.123457, 123457000.0, 1e-30]


def test_a_file_without_rows_or_steps_has_no_curves():
    assert of("step,train/loss\n") == {}
    assert of("a,b\n1,2\n") == {}
    assert of("step,train/loss\n,2\n") == {}


def test_charts_are_in_the_order_of_importance():
    one = of("step,train/b,train/loss,train/a,test/spearman,own,val/uniformity\n0,1,1,1,,1,1\n1,1,1,1,,1,1\n2,,,,1,,\n")
    two = of("step,val/spearman,val/x,val/nan,geometry/trace\n0,1,1,nan,1\n1,1,,nan,1\n")
    assert [*metric_groups([one, two, {}]).items()] == [
        ("val", ["val/spearman", "val/uniformity", "val/x"]),
        ("geometry", ["geometry/trace"]),
        ("train", ["train/loss", "train/a", "train/b"]),
        ("own", ["own"]),
    ]
    assert metric_groups([]) == metric_groups([{}]) == {}
