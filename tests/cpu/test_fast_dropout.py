"""Fast dropout: rate, scale, gradient, attention, and seeding by torch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from simcse_pl.cpu import layers as module
from simcse_pl.cpu.layers import FastDropout, fast_dropout, use_fast_dropout
from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import SENTENCES

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.01, 0.5])
def test_elements_are_zeroed_at_the_rate_and_the_others_scaled(dtype, p):
    n = 400_001
    dropped = fast_dropout(torch.ones(n, dtype=dtype), p)
    zeroed = (dropped == 0).double()
    spread = (p * (1 - p) / n) ** 0.5
    assert abs(zeroed.mean().item() - p) < 5 * spread + 2**-15
    assert dropped[dropped != 0].unique().tolist() == [torch.tensor(1 / (1 - p), dtype=dtype).item()]
    neighbours = torch.corrcoef(torch.stack([zeroed[1:], zeroed[:-1]]))[0, 1]
    assert abs(neighbours) < 5 / n**0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_is_masked_and_scaled_as_the_input_was(dtype):
    x = torch.randn(50, 7, dtype=dtype).requires_grad_()
    dropped = fast_dropout(x.T, 0.3)  # not contiguous
    upstream = torch.randn(7, 50, dtype=dtype)
    dropped.backward(upstream)
    mask = (dropped != 0).T
    torch.testing.assert_close(x.grad, upstream.T * mask / 0.7, atol=0, rtol=8e-3 if x.element_size() == 2 else 1e-6)


def test_masks_are_seeded_by_torch():
    torch.manual_seed(3)
    first, second = (fast_dropout(torch.ones(1000), 0.5) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(fast_dropout(torch.ones(1000), 0.5), first) and not torch.equal(first, second)


class Attention(nn.Module):
    is_causal = False


@pytest.mark.parametrize("mask", ["none", "boolean", "added"])
def test_attention_equals_its_formula(mask, monkeypatch):
    query, key, value = torch.randn(3, 2, 4, 5, 8).unbind()
    visible = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()[:, None, None, :]
    given = {"none": None, "boolean": visible, "added": (~visible).float() * -1e9}[mask]
    seen = []
    monkeypatch.setattr(module, "fast_dropout", lambda x, p: seen.append((x, p)) or x)
    output, weights = module._attention(Attention(), query, key, value, given, dropout=0.1, scaling=0.3)
    scores = torch.einsum("bhqd,bhkd->bhqk", query.double(), key.double()) * 0.3
    if mask != "none":
        scores = scores.masked_fill(~visible, -torch.inf)
    expected = torch.einsum("bhqk,bhkd->bqhd", scores.softmax(-1), value.double())
    torch.testing.assert_close(output.double(), expected, atol=1e-6, rtol=0)
    assert weights is None
    ((probabilities, rate),) = seen
    assert rate == 0.1
    torch.testing.assert_close(probabilities.double(), scores.softmax(-1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "modernbert"])
def test_a_backbone_is_unchanged_in_evaluation_and_random_in_training(architecture, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean", dropout=0.3)
    before = encoder.encode(SENTENCES)
    names = list(encoder.state_dict())
    use_fast_dropout(encoder.backbone)
    assert list(encoder.state_dict()) == names
    assert any(isinstance(m, FastDropout) for m in encoder.modules())
    torch.testing.assert_close(encoder.encode(SENTENCES), before, atol=1e-6, rtol=0)
    encoder.train()
    inputs = encoder.tokenizer(SENTENCES, padding=True, return_tensors="pt")
    vectors = torch.stack([encoder(inputs) for _ in range(200)])
    assert not torch.equal(vectors[0], vectors[1])
    assert F.cosine_similarity(vectors.mean(0), before).min() > 0.9
