"""Reading and writing results files, and errors for damaged ones."""

import json
import math

import pytest

from simcse_pl.results.evaluation_results import Result, as_result, read
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import write_json


def test_a_results_file_is_read_by_its_name_or_its_folders(write_results, make_report):
    folder = write_results("one", make_report("one"))
    for path in (folder, folder / "results.json", str(folder)):
        result = read(path)
        assert isinstance(result, Result)
        assert result.label == "one"
        assert result.sts[0].all.spearman == 0.5
        assert result.sts[0].subsets["STS12_a"].pairs == 750
        assert result.geometry.top_variance == {"1": 0.1, "10": 0.5, "100": 1.0}


def test_only_the_label_is_required_and_null_is_nan():
    result = as_result({"label": "bare", "something": "new"}, "r")
    assert math.isnan(as_result({"label": "x", "geometry": {"alignment": None}}, "r").geometry.alignment)
    assert (result.sts, result.transfer, result.geometry, result.retrieval, result.paper) == ([], [], None, None, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None}, "r.json is not a results file of evaluate.py: label: Input should be a valid string"),
        ({"sts": [{"split": "test"}]}, "sts.0.task: Field required"),
        ({"sts": [{"task": "STS12", "all": {"spearman": "0.7"}}]}, "sts.0.all.spearman: Input should be a valid num"),
    ],
)
def test_an_error_names_the_invalid_value(make_report, change, message):
    with pytest.raises(UserError) as error:
        as_result(make_report() | change, "r.json")
    assert message in str(error.value)


@pytest.mark.parametrize("content", ["", '{"label": "cut', "[1, 2]", "\udcff"])
def test_a_damaged_file_is_a_one_line_error(tmp_path, content):
    file = tmp_path / "results.json"
    file.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match="results.json is"):
        read(tmp_path)


def test_the_results_of_a_training_run_point_to_its_folder(write_run):
    with pytest.raises(UserError, match="belongs to a training run: give the run's folder"):
        read(write_run() / "results.json")


def test_nan_and_infinity_are_null_in_the_file(tmp_path):
    write_json(tmp_path / "results.json", {"best": {"spearman": float("nan")}, "sts": [float("inf"), 0.5], "é": None})
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == {"best": {"spearman": None}, "sts": [None, 0.5], "é": None}
