"""Scores over seeds against numpy, and tables of them in their forms."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from simcse_pl.reports.tables.spread import MeanStd, SpreadTable, spread

VALUES = [70.123456789, 72.5, 68.0001]


def test_mean_and_deviation_are_numpys():
    own = spread(VALUES)
    assert (own.mean, own.deviation, own.count) == (
        pytest.approx(np.mean(VALUES)), pytest.approx(np.std(VALUES, ddof=1)), 3,
    )  # fmt: skip


def test_one_seed_has_no_deviation_and_none_no_score():
    assert spread([70.5]) == MeanStd(70.5, None, 1)
    assert spread([]) is None
    assert spread([70.5, 70.5]).deviation == 0


def test_a_spread_is_shown_with_what_is_asked_for():
    own = MeanStd(70.256, 1.5, 3)
    assert f"{own:.2f}" == "70.26 ± 1.50"
    assert f"{MeanStd(70.256, 1.5, 3, best=True, counted=True):.1f}" == "* 70.3 ± 1.5 (3)"
    assert f"{MeanStd(-2.1234, None, 1, counted=True):.3f}" == "-2.123 (1)"


@pytest.fixture
def table():
    cells = pd.Series([MeanStd(np.mean(VALUES), np.std(VALUES, ddof=1), 3, True, True), MeanStd(1 / 3, None, 1), None])
    frame = pd.DataFrame({"dropout": ["0.1", "fixed 0.1", "a & b"], "dev": cells, "paper": [82.5, float("nan"), 43.6]})
    return SpreadTable("sweep", "a title", frame, {"dev": 2, "paper": 1}, ["a note"])


def test_csv_has_every_digit_of_mean_and_deviation_and_the_count(table):
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert list(rows[0]) == ["dropout", "dev", "dev std", "dev n", "paper"]
    assert [float(rows[0]["dev"]), float(rows[0]["dev std"])] == [np.mean(VALUES), np.std(VALUES, ddof=1)]
    assert [[row[name] for name in ("dev", "dev std", "dev n", "paper")] for row in rows[1:]] == [
        [str(1 / 3), "", "1", ""],
        ["", "", "0", "43.6"],
    ]


def test_json_has_null_for_what_is_not_there(table):
    content = json.loads(table.json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (content["title"], content["notes"]) == ("a title", ["a note"])
    assert content["rows"][0]["dev std"] == np.std(VALUES, ddof=1)
    assert content["rows"][1] == {"dropout": "fixed 0.1", "dev": 1 / 3, "dev std": None, "dev n": 1, "paper": None}
    assert content["rows"][2] == {"dropout": "a & b", "dev": None, "dev std": None, "dev n": 0, "paper": 43.6}


def test_readers_see_one_cell_set_to_the_right(table):
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table.printed())
    assert "│ 0.1       │ * 70.21 ± 2.25 (3) │  82.5 │" in console.export_text()
    lines = table.markdown().splitlines()
    assert [cell.strip() for cell in lines[4].split("|")[1:-1]] == ["0.1", "* 70.21 ± 2.25 (3)", "82.5"]
    assert [cell.endswith(":") for cell in lines[3].split("|")[1:-1]] == [False, True, True]
    assert r"\begin{tabular}{lrr}" in table.latex()
    assert r"0.1 & * 70.21 ± 2.25 (3) & 82.5 \\" in table.latex()
    assert r"a \& b & – & 43.6 \\" in table.latex()
