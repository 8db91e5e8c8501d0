"""A step whose loss or gradient is not finite ends the run."""

import re

import pytest
from torch.utils.data import DataLoader

from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw, quiet_trainer, tiny


def test_a_loss_that_is_not_finite_ends_the_run_with_its_step_and_rows(train, make_model, sentences):
    given = ["optimizer.lr=1e30", "data=text", f"data.train={sentences}", "val_every=100", "logger=csv"]
    done, folder = train(*tiny(make_model("bert")), *given, status=2)
    said = rf"error: step 2: the loss is nan and its gradient's norm nan, in rows ([\d, ]+) of {sentences}: "
    rows = re.match(said, done.stderr.splitlines()[-1])[1].split(", ")
    assert {*rows} <= {*map(str, range(1, len(SENTENCES) + 1))} and len(rows) > 1
    assert not (folder / "results.json").exists()


class BadGradient(ContrastiveLoss):
    def forward(self, encoder, batch):
        return super().forward(encoder, batch) + (batch.embeddings.sum() * 0).sqrt()


def test_a_gradient_that_is_not_finite_ends_the_run(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "cls", num_layers=1)
    batch = ViewCollator(encoder.tokenizer, 16)([(sentence,) for sentence in SENTENCES])
    loader = DataLoader([batch], batch_size=None)
    with pytest.raises(UserError, match="^step 1: the loss is .* and its gradient's norm nan, in unknown rows"):
        quiet_trainer(max_epochs=1).fit(SimCSEModule(encoder, BadGradient(), adamw()), loader)
