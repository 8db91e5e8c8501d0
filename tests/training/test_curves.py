"""The curves of batches: their values, and the steps at which they are logged."""

import pandas
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import default_roles
from simcse_pl.tracking.csv_logger import CurvesLogger
from simcse_pl.training.callbacks import BatchCurves, CountSteps, mean_similarities, share_of_duplicates
from simcse_pl.training.module import SimCSEModule
from tests.conftest import SENTENCES, adamw, quiet_trainer


@pytest.fixture
def encoder(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", num_layers=1)


def test_similarities_are_mean_cosines_with_the_own_positive_and_with_all_negatives():
    x = torch.randn(4, 3, 5)
    curves = mean_similarities(EmbeddedBatch.of(*x.unbind(dim=1)))
    cosines = F.cosine_similarity(x[:, None, None, 0], x[None, :, 1:], dim=-1)  # [anchor, row, view]
    own = torch.eye(4).bool()[..., None] & torch.tensor([True, False])
    torch.testing.assert_close(curves["positive_similarity"], cosines[own].mean())
    torch.testing.assert_close(curves["negative_similarity"], cosines[~own].mean())
    one = mean_similarities(EmbeddedBatch.of(*x[:1, :2].unbind(dim=1)))
    assert one["negative_similarity"].isnan() and not one["positive_similarity"].isnan()


def test_duplicates_are_rows_with_one_of_their_sentences_among_their_negatives(encoder):
    rows = [(0, 1), (2, 0), (3, 4), (3, 5), (6, 6)]  # the last row's two views may be equal
    views = ViewCollator(encoder.tokenizer, 16)([(SENTENCES[first], SENTENCES[second]) for first, second in rows])
    batch = EmbeddedBatch(encoder, views, default_roles(2))
    assert share_of_duplicates(batch) == pytest.approx(4 / 5)


def fit(encoder, folder, steps, every, **options):
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), **options)
    collate = ViewCollator(encoder.tokenizer, 16)
    loader = DataLoader([(text,) for text in SENTENCES], batch_size=2, collate_fn=collate)
    trainer = quiet_trainer(max_epochs=-1, max_steps=steps, callbacks=[CountSteps(), BatchCurves()])
    trainer.loggers = [CurvesLogger(folder, name="", version="")]
    trainer.log_every_n_steps = every
    trainer.fit(module, loader)
    return pandas.read_csv(folder / "metrics.csv").set_index("step")


@pytest.mark.parametrize(("steps", "every", "logged"), [(7, 3, [3, 6, 7]), (6, 3, [3, 6])])
def test_curves_are_logged_with_the_loss_and_at_the_last_step(encoder, tmp_path, steps, every, logged):
    curves = fit(encoder, tmp_path, steps, every)
    names = ("loss", "positive_similarity", "negative_similarity", "duplicates")
    for name in names:
        assert curves[f"train/{name}"].dropna().index.tolist() == logged, name
