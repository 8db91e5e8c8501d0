"""`make gpu`: what it compares and measures, on a pretend device and on the CPU, and its page."""

import json
import re
from functools import partial

import pytest
import torch

from benchmarks.gpu import correctness
from benchmarks.gpu.__main__ import PAGE, PARTS, RECORDS
from benchmarks.gpu.page import updated
from simcse_pl.config import CONF
from tests.conftest import ROOT
from tests.support.pretend_device import DEVICE, Pretend


def test_every_method_and_every_loss_is_compared():
    cases = correctness.cases()
    used = {"simcse", *(name.partition("=")[2] for name in cases if "method" not in name)}  # the default, too
    for file in (CONF / "method").glob("*.yaml"):
        assert f"method={file.stem}" in cases
        for names in re.findall(r"override /(?:objective|auxiliary): \[?([\w, ]+)", file.read_text()):
            used |= {*names.split(", ")}
    assert {file.stem for group in ("objective", "auxiliary") for file in (CONF / group).glob("*.yaml")} == used


@pytest.mark.parametrize("name", ["method=diffcse", "method=dclr", "method=esimcse"])
def test_another_device_computes_with_the_same_random_numbers(name, gpu_encoders):
    module, rows = correctness.case_of(correctness.cases()[name], gpu_encoders)
    loss, gradient = correctness.loss_and_gradient(module, rows, "cpu")
    with Pretend():
        torch.testing.assert_close(correctness.loss_and_gradient(module, rows, str(DEVICE))[0], loss, rtol=1e-4, atol=0)
    assert gradient.norm() > 1e-3


def test_a_wrong_gradient_and_an_error_fail(gpu_encoders):
    case, checked = correctness.cases()["method=simcse"], partial(correctness.checked, "x", correctness.compared)
    right = checked(case, gpu_encoders, "cpu")
    assert right["passed"] and right["errors"]["float32"] == [0, 0] < right["errors"]["bf16"]
    reference = [*case, "objective.temperature=0.06"]
    assert not checked(case, gpu_encoders, "cpu", ("float32",), reference)["passed"]
    unknown = checked([*case, "model.pooling=unknown"], gpu_encoders, "cpu")
    assert not unknown["passed"] and "unknown" in unknown["error"]


def test_the_page_shows_the_records_and_otherwise_that_nothing_is_measured(tmp_path):
    page = (ROOT / PAGE).read_text()
    assert updated(page, RECORDS) == page
    assert {*re.findall("<!-- (?!end)(.*) -->", page)} == {*PARTS, "machine", "peak"}
    assert updated(page, tmp_path).count("Not measured.") == len(PARTS) + 2
    common = {"machine": {"card": "Card", "count": 2, "versions": "v", "python": "3"}, "date": "d", "complete": False}
    rates = {"case": "m", "operations_per_second": {"bfloat16": 4e12}}
    speed = {"case": "c", "rows": 10, "operations": 2e12, "memory": {"b": 5e9}}
    records = [rates, speed | {"seconds": {"a": [4.0, 2.0, 8.0], "b": [1.0, 1.0, 1.0]}}]
    (tmp_path / "training.json").write_text(json.dumps(common | {"records": records}))
    failed = {"case": "y", "error": "z", "passed": False}
    errors = [{"case": "x", "errors": {"bf16": [0.1, 0.2]}, "passed": True}, failed]
    (tmp_path / "losses.json").write_text(json.dumps(common | {"complete": True, "records": errors}))
    shares = {"case": "p", "kernels": 1234, "idle": 0.1, "matrix_products": 0.6, "attention": 0.2}
    (tmp_path / "profiles.json").write_text(json.dumps(common | {"complete": True, "records": [shares]}))
    text = updated(page, tmp_path)
    assert "| p | 1,234 | 10 % | 60 % | 20 % |" in text
    assert "|  | b | 10 | 4.00 (2.00 to 8.00) | 50.0 % | 5.00 |" in text and text.count("ended before") == 1
    assert "| bf16 | 1 | 2.0e-01 | 2.0e-01 (`x`) |" in text and "`x` |" not in text
    assert "| `y` **failed** z |" in text and "2 x Card" in text


@pytest.mark.slow
def test_the_command_measures_everything(run_command, tmp_path):
    page = tmp_path / "gpu.md"
    page.write_text((ROOT / PAGE).read_text())
    run_command("-m", "benchmarks.gpu", "--device", "cpu", "--tiny", "--out", tmp_path, "--page", page)
    contents = {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert all(own["complete"] for own in contents.values()) and len(contents) == 8
    assert "Not measured" not in page.read_text() and "` **failed**" not in page.read_text()
