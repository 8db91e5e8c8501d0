"""The research example runs in an empty folder, beside an installed simcse_pl, and its parts take effect."""

import json
import shutil

import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf

from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import ROOT, SENTENCES, environment

EXAMPLE = "examples/my_research"
COMMAND = ["--config-dir", f"{EXAMPLE}/conf", "experiment=my_idea"]


def test_the_example_runs_in_an_empty_folder_and_its_parts_take_effect(forks_of_session, tmp_path):
    shutil.copytree(ROOT / EXAMPLE, tmp_path / EXAMPLE)
    (tmp_path / "bin").mkdir()  # as that of an environment
    (tmp_path / "bin" / "simcse").write_text("from simcse_pl.__main__ import main\n\nmain()\n")
    given = ["bin/simcse", "train", *COMMAND, "trainer.max_epochs=2", "hydra.run.dir=run"]
    done = forks_of_session.run(*given, environment=environment(), clone=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"

    results = json.loads((run / "results.json").read_text())
    assert results["validation"] == "dev_de.tsv" and results["monitor"] == "spearman"
    assert {"spearman", "nearest_partner"} <= results["best"].keys() & results["test"].keys()
    curves = pd.read_csv(run / "metrics.csv")
    assert {"train/teacher", "train/margin"} <= set(curves.columns)
    rates = curves["train/lr"].dropna()
    assert rates.iloc[0] == pytest.approx(0.005) and rates.iloc[-1] < 0.001, "a cosine schedule"
    views = OmegaConf.load(run / "config" / "resolved.yaml").data.views
    assert views == {"typo": {"_target_": "examples.my_research.view.Typo", "role": "positive"}}

    weights = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert not [name for name in weights if "teacher" in name]
    pooling = "examples.my_research.pooling.mask_and_cls"
    encoder = SentenceEncoder.from_pretrained(run / "encoder", pooling=pooling)
    assert encoder.encode(SENTENCES).isfinite().all()
    with pytest.raises(Exception, match=f"pooling={pooling}"):
        SentenceEncoder.from_pretrained(run / "encoder")
