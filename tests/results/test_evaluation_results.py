"""Reading and writing results files, and errors for damaged ones."""

import json

import pytest

from simcse_pl.results.evaluation_results import Result, read
from simcse_pl.utils.files import write_json


def test_a_results_file_is_read_by_its_name_or_its_folder(write_results, make_report):
    folder = write_results("one", make_report("one"))
    for path in (folder / "results.json", str(folder)):
        result = read(path)
        assert isinstance(result, Result) and result.label == "one"
        assert result.sts[0].subsets["STS12_a"].pairs == 750
        assert result.geometry.top_variance == {"1": 0.1, "10": 0.5, "100": 1.0}


def test_nan_and_infinity_are_null_in_the_file(tmp_path):
    write_json(tmp_path / "results.json", {"best": {"spearman": float("nan")}, "sts": [float("inf"), 0.5], "é": None})
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == {"best": {"spearman": None}, "sts": [None, 0.5], "é": None}
