"""The research example runs in an empty folder, beside an installed simcse_pl, and its parts take effect."""

import json
import random
import shutil
import subprocess
import sys

import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf

from examples.my_research.module import WarmUpOfTerms
from examples.my_research.terms import NegativeMargin
from examples.my_research.view import Typo
from simcse_pl.data.training_set import ViewCollator
from simcse_pl.data.views.view import ViewInput
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import ROOT, SENTENCES, adamw

EXAMPLE = "examples/my_research"
COMMAND = ["--config-dir", f"{EXAMPLE}/conf", "experiment=my_idea"]


@pytest.fixture(scope="module")
def idea(tmp_path_factory):
    """Run the example in an empty folder; return the run's folder."""
    folder = tmp_path_factory.mktemp("empty")
    shutil.copytree(ROOT / EXAMPLE, folder / EXAMPLE)
    command = "import sys; from simcse_pl.__main__ import main; sys.path.remove(''); main()"  # as the script simcse
    done = subprocess.run(
        [sys.executable, "-c", command, "train", *COMMAND, "trainer.max_epochs=4", "hydra.run.dir=run"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_the_run_uses_the_examples_data_optimizer_and_evaluator(idea):
    results = json.loads((idea / "results.json").read_text())
    assert results["validation"] == "dev_de.tsv" and results["monitor"] == "spearman"
    assert {"spearman", "nearest_partner"} <= results["best"].keys() & results["test"].keys()
    curves = pd.read_csv(idea / "metrics.csv")
    assert {"train/teacher", "train/margin"} <= set(curves.columns)
    rates = curves["train/lr"].dropna()
    assert rates.iloc[0] == pytest.approx(0.005) and rates.iloc[-1] < 0.001, "a cosine schedule"


def test_a_row_of_the_run_has_a_second_positive_with_a_typing_error(idea):
    views = OmegaConf.load(idea / "config" / "resolved.yaml").data.views
    assert views == {"typo": {"_target_": "examples.my_research.view.Typo", "role": "positive"}}
    made = Typo()([ViewInput("Der Zug fährt ab.", (), random.Random(seed), ()) for seed in range(20)])
    assert {*made} == {"Der Zug fhärt ab.", "Der Zug färht ab."}
    assert Typo().make(ViewInput("Er ist da.", (), random.Random(0), ())) == "Er ist da."


def test_the_teacher_is_not_saved_and_the_encoder_needs_its_pooling_by_name(idea):
    weights = torch.load(idea / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert not [name for name in weights if "teacher" in name]
    pooling = "examples.my_research.pooling.mask_and_cls"
    encoder = SentenceEncoder.from_pretrained(idea / "encoder", pooling=pooling)
    assert encoder.encode(SENTENCES).isfinite().all()
    with pytest.raises(Exception, match=f"pooling={pooling}"):
        SentenceEncoder.from_pretrained(idea / "encoder")


def test_the_auxiliary_losses_reach_their_weights_after_the_warmup(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", dropout=0.0, num_layers=1)
    margin = NegativeMargin(0.5, margin=1.0)
    module = WarmUpOfTerms(encoder, ContrastiveLoss(), adamw(), auxiliary={"margin": margin}, warmup=0.5)
    rows = ViewCollator(encoder.tokenizer, 16)([tuple(SENTENCES[:3]), tuple(SENTENCES[3:6])])
    for progress, share in ((0.0, 0.0), (0.25, 0.5), (0.5, 1.0), (0.75, 1.0)):
        batch = module.batch_of(rows, progress)
        objective, term = ContrastiveLoss()(encoder, batch), margin(encoder, batch)
        torch.testing.assert_close(module.loss(batch), objective + share * 0.5 * term)
        assert batch.curves == {"margin": term} and term > 0
