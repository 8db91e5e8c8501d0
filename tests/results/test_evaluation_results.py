"""Reading and writing results files, and errors for damaged ones."""

import json
import math

import pytest

from simcse_pl.results.evaluation_results import Result, read
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import write_json


def test_a_results_file_is_read_by_its_name_or_its_folder(write_results, make_report):
    folder = write_results("one", make_report("one"))
    for path in (folder / "results.json", str(folder)):
        result = read(path)
        assert isinstance(result, Result) and result.label == "one"
        assert result.sts[0].subsets["STS12_a"].pairs == 750
        assert result.geometry.top_variance == {"1": 0.1, "10": 0.5, "100": 1.0}


def test_only_the_label_is_required_and_null_is_nan():
    result = Result.model_validate({"label": "bare", "something": "new", "geometry": {"alignment": None}})
    assert math.isnan(result.geometry.alignment)
    assert (result.sts, result.transfer, result.retrieval, result.paper) == ([], [], None, None)


def test_an_error_names_the_invalid_value(make_report, write_results):
    folder = write_results("r", make_report() | {"sts": [{"task": "STS12", "all": {"spearman": "0.7"}}]})
    with pytest.raises(UserError, match=r"results.json is not a results file: sts.0.all.spearman: .*number"):
        read(folder)


def test_a_damaged_file_and_a_folder_without_results_are_errors(tmp_path):
    with pytest.raises(UserError, match="no results.json or metrics.csv in"):
        read(tmp_path)
    (tmp_path / "results.json").write_text('{"label": "cut')
    with pytest.raises(UserError, match="results.json is not valid JSON"):
        read(tmp_path)


def test_nan_and_infinity_are_null_in_the_file(tmp_path):
    write_json(tmp_path / "results.json", {"best": {"spearman": float("nan")}, "sts": [float("inf"), 0.5], "é": None})
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == {"best": {"spearman": None}, "sts": [None, 0.5], "é": None}
