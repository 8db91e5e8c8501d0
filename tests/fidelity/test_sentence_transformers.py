"""Losses have the values and the gradients of those of sentence-transformers, in float64."""

import copy

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as official

from benchmarks.fidelity.common import TRIPLETS
from benchmarks.fidelity.compare import FOLDER
from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.methods.distillation import MarginMSE
from simcse_pl.methods.gist import GISTLoss
from simcse_pl.methods.matryoshka import MatryoshkaLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.types import default_roles

DIMS, WEIGHTS = [8, 4, 2], [1.0, 0.5, 2.0]


def ranking(model):
    return official.MultipleNegativesRankingLoss(model, scale=20.0)


def matryoshka(model):
    return official.MatryoshkaLoss(model, ranking(model), DIMS, WEIGHTS)


def assert_same_gradients(encoder, model):
    expected = {name: weight.grad for name, weight in model[0].auto_model.named_parameters()}
    for name, weight in encoder.backbone.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name], rtol=1e-9, atol=1e-9)


def compare(make, loss, tmp_path, chunk_size=None):
    """Compare a loss of sentence-transformers, made of a model, with one of ours on triplets."""
    encoder = SentenceEncoder.from_pretrained(FOLDER / "bert", pooling="mean")
    encoder.save_pretrained(tmp_path)
    model = SentenceTransformer(str(tmp_path), device="cpu").double()
    encoder.double().train()
    inputs = ViewCollator(encoder.tokenizer, 32)(TRIPLETS)
    labels = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)
    loss.attach(encoder)
    given = labels if isinstance(loss, MarginMSE) else None
    batch = EmbeddedBatch(encoder, inputs, roles=default_roles(3), labels=given, chunk_size=chunk_size)
    here = loss(batch)
    here.backward()
    views = [{name: x[:, view] for name, x in inputs.items()} for view in range(3)]
    there = make(model)(views, labels)
    there.backward()
    torch.testing.assert_close(here, there, rtol=1e-10, atol=1e-10)
    assert_same_gradients(encoder, model)


@pytest.mark.parametrize(
    ("make", "loss", "chunk_size"),
    [
        (ranking, ContrastiveLoss(0.05), 2),
        (matryoshka, MatryoshkaLoss(ContrastiveLoss(0.05), DIMS, WEIGHTS), 2),
        (official.MarginMSELoss, MarginMSE(similarity="dot"), None),
    ],
)
def test_losses(make, loss, chunk_size, tmp_path):
    compare(make, loss, tmp_path, chunk_size)


@pytest.mark.parametrize("strategy", ["absolute", "relative"])
def test_guided_loss(strategy, tmp_path):
    SentenceEncoder.from_pretrained(FOLDER / "bert", pooling="cls").save_pretrained(tmp_path / "guide")
    guide = SentenceTransformer(str(tmp_path / "guide"), device="cpu")
    given = {"temperature": 0.05, "margin": 0.05}
    loss = GISTLoss(tmp_path / "guide", relative_margin=strategy == "relative", same_role=True, **given)
    compare(
        lambda model: official.GISTEmbedLoss(model, guide, margin_strategy=strategy, contrast_positives=False, **given),
        loss,
        tmp_path / "trained",
    )


def test_contrastive_tension_with_negatives_of_the_batch(tmp_path):
    encoders = [SentenceEncoder.from_pretrained(FOLDER / "bert", pooling="mean").double() for _ in range(2)]
    encoders[0].save_pretrained(tmp_path)
    for weight in encoders[1].parameters():
        weight.data *= 1.5
    inputs = ViewCollator(encoders[0].tokenizer, 32)([row[:1] for row in TRIPLETS])
    ours = ContrastiveLoss(0.05, symmetric=True, trainable_temperature=True).double()
    here = ours(EmbeddedBatch(encoders[0], inputs, positive_encoder=encoders[1]))
    model = SentenceTransformer(str(tmp_path), device="cpu").double()
    theirs = official.ContrastiveTensionLossInBatchNegatives(copy.deepcopy(model)).double()
    for network, encoder in zip((theirs.model1, theirs.model2), encoders, strict=True):
        network[0].auto_model.load_state_dict(encoder.backbone.state_dict(), strict=False)  # it has no pooler
    there = theirs([{name: x[:, 0] for name, x in inputs.items()}], torch.empty(0))
    here.backward(), there.backward()
    torch.testing.assert_close(here, there, rtol=1e-10, atol=1e-10)
    for network, encoder in zip((theirs.model1, theirs.model2), encoders, strict=True):
        assert_same_gradients(encoder, network)
    torch.testing.assert_close(ours.log_scale.grad[0], theirs.logit_scale.grad, rtol=1e-9, atol=1e-9)


def test_the_loss_of_gte_has_one_sum_of_four_directions():
    vectors = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    directions = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
    theirs = official.MultipleNegativesRankingLoss(None, directions=directions, partition_mode="joint")
    there = theirs.compute_loss_from_embeddings([*vectors], None)
    here = ContrastiveLoss(0.05, symmetric="joint", same_role=True)(*vectors)
    torch.testing.assert_close(here, there, rtol=1e-12, atol=0)
