"""The research example runs in an empty folder, beside an installed simcse_pl, and its parts take effect."""

import json
import shutil
import subprocess
import sys

import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf

from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import ROOT, SENTENCES

EXAMPLE = "examples/my_research"
COMMAND = ["--config-dir", f"{EXAMPLE}/conf", "experiment=my_idea"]


def test_the_example_runs_in_an_empty_folder_and_its_parts_take_effect(tmp_path):
    shutil.copytree(ROOT / EXAMPLE, tmp_path / EXAMPLE)
    command = "import sys; from simcse_pl.__main__ import main; sys.path.remove(''); main()"  # as the script simcse
    given = [sys.executable, "-c", command, "train", *COMMAND, "trainer.max_epochs=4", "hydra.run.dir=run"]
    done = subprocess.run(given, cwd=tmp_path, capture_output=True, text=True)
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
