"""Shared dropout: equal views are equal, different ones share their masks, and the generator moves on."""

import pytest
import torch
from torch import nn

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import pool_with_shared_dropout
from tests.tiny_models import ARCHITECTURES

RATE = 0.3


@pytest.fixture
def batch():
    """Three views of different text and length."""
    lengths = torch.randint(1, 8, (5, 3, 1))
    return {"input_ids": torch.randint(5, 90, (5, 3, 7)), "attention_mask": (torch.arange(7) < lengths).long()}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_views_of_the_same_text_are_equal_to_the_bit(architecture, make_model, batch):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean", dropout=RATE).train()
    same = {name: x[:, :1].repeat(1, 2, 1) for name, x in batch.items()}
    first, second = pool_with_shared_dropout(encoder, same).unbind(dim=1)
    assert torch.equal(first, second)
    ordinary = encoder({name: x[:, 0] for name, x in same.items()})
    assert ((first - ordinary).abs().amax(dim=-1) > 0.01).all()


def test_views_of_different_text_share_their_masks(batch):
    """With word embeddings of ones, a vector is its mask."""
    ones = nn.Embedding.from_pretrained(torch.ones(90, 16))

    def encoder(inputs):
        return nn.functional.dropout(ones(inputs["input_ids"]), RATE).flatten(1)

    vectors = pool_with_shared_dropout(encoder, batch)
    masks = vectors == 0
    assert torch.equal(masks[:, 0], masks[:, 1]) and torch.equal(masks[:, 0], masks[:, 2])
    assert 0.2 < masks.float().mean() < 0.4
    assert len({tuple(row.tolist()) for row in masks[:, 0]}) == len(masks), "rows have different masks"
    assert not torch.equal(pool_with_shared_dropout(encoder, batch) == 0, masks), "steps have different masks"
