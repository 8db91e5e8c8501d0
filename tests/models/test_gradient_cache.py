"""Chunks have the gradients of one pass and store no activations; views can share their dropout masks."""

import itertools

import pytest
import torch
from torch import nn

from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks, pool_with_shared_dropout
from tests.conftest import SENTENCES


def gradients(encoder, embed, seed=5):
    encoder.zero_grad()
    torch.manual_seed(seed)
    loss = ContrastiveLoss()(*embed().unbind(dim=1))
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in encoder.parameters()]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("embed", [SentenceEncoder.embed, pool_with_shared_dropout])
def test_chunks_have_the_gradients_of_stored_activations_with_the_same_dropout(embed, size, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp").train()
    batch = ViewCollator(encoder.tokenizer, 32)(list(itertools.pairwise(SENTENCES)))

    def stored():
        columns = zip(*(x.split(size) for x in batch.values()), strict=True)
        return torch.cat([embed(encoder, dict(zip(batch, chunk, strict=True))) for chunk in columns])

    loss, expected = gradients(encoder, stored)
    again, found = gradients(encoder, lambda: apply_in_chunks(lambda chunk: embed(encoder, chunk), batch, size))
    assert again == loss
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    other_masks, _ = gradients(encoder, stored, seed=6)
    assert other_masks != loss, "dropout is on"


def test_backward_recomputes_one_chunk_at_a_time():
    events = []
    layer = nn.Linear(4, 4)

    def function(chunk):
        events.append(f"compute {len(chunk['x'])}")
        vectors = layer(chunk["x"]).exp()
        vectors.register_hook(lambda gradient: events.append("backward"))
        return vectors

    apply_in_chunks(function, {"x": torch.randn(5, 4)}, 2).sum().backward()
    assert events[:3] == ["compute 2", "compute 2", "compute 1"]
    assert events[3:] == ["backward", "compute 1", "backward", "compute 2", "backward", "compute 2"]
    for size in (None, 5, 100):
        events.clear()
        apply_in_chunks(function, {"x": torch.randn(5, 4)}, size).sum().backward()
        assert events == ["compute 5", "backward"]


def test_views_of_different_text_share_their_masks():
    """With word embeddings of ones, a vector is its mask."""
    ones = nn.Embedding.from_pretrained(torch.ones(90, 16))

    def encoder(inputs):
        return nn.functional.dropout(ones(inputs["input_ids"]), 0.3).flatten(1)

    batch = {"input_ids": torch.randint(5, 90, (5, 3, 7))}
    vectors = pool_with_shared_dropout(encoder, batch)
    masks = vectors == 0
    assert torch.equal(masks[:, 0], masks[:, 1]) and torch.equal(masks[:, 0], masks[:, 2])
    assert 0.2 < masks.float().mean() < 0.4
    assert len({tuple(row.tolist()) for row in masks[:, 0]}) == len(masks), "rows have different masks"
    assert not torch.equal(pool_with_shared_dropout(encoder, batch) == 0, masks), "steps have different masks"
