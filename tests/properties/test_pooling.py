"""Poolings of any shape equal a loop over tokens, without effect of padding, other rows or overflow."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simcse_pl.models.pooling import POOLINGS, find_pooling
from simcse_pl.models.templates import SENTENCE_MASK
from tests.properties.strategies import shapes

SEEDS = st.integers(0, 2**31)
NAMES = st.sampled_from([*POOLINGS, "layers_0", "layers_2_1", "layers_0_1_2_3"])
DTYPES = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])
LAYERS = 3
CONFIG = SimpleNamespace(num_hidden_layers=LAYERS)
REDUCE = {
    "cls": lambda values: values[0],
    "last_token": lambda values: values[-1],
    "max": max,
    "weighted_mean": lambda values: (
        math.fsum(n * value for n, value in enumerate(values, 1)) / sum(range(len(values) + 1))
    ),
}


@st.composite
def inputs(draw):
    """Hidden states [layers + 1][batch, tokens, dim] and the number of tokens of each row, at least one."""
    batch, tokens, dim = draw(shapes(4, 7, 3))
    generator = torch.Generator().manual_seed(draw(SEEDS))
    states = torch.randn(LAYERS + 1, batch, tokens, dim, generator=generator, dtype=torch.float64)
    return states, draw(st.lists(st.integers(1, tokens), min_size=batch, max_size=batch))


def inputs_of(lengths, tokens, left=False):
    """All tokens are the sentence's own."""
    mask = (torch.arange(tokens) < torch.tensor(lengths)[:, None]).long()
    mask = mask.flip(1) if left else mask
    return {"attention_mask": mask, SENTENCE_MASK: mask}


@given(given=inputs(), name=NAMES, dtype=DTYPES, exponent=st.integers(-3, 4), left=st.booleans())
def test_equals_a_loop_over_tokens(given, name, dtype, exponent, left):
    states, lengths = given
    states = (states * 10.0**exponent).to(dtype)
    pooling, tokens = find_pooling(name, CONFIG), states.shape[2]
    left = left and name != "cls"
    pooled = pooling(states, inputs_of(lengths, tokens, left))
    assert pooled.dtype == dtype
    reduce = REDUCE.get(name, lambda values: math.fsum(values) / len(values))
    for row, length in enumerate(lengths):
        for i in range(states.shape[3]):
            place = slice(tokens - length, tokens) if left else slice(length)
            of_layers = [reduce(states[layer, row, place, i].tolist()) for layer in pooling.layers]
            expected = math.fsum(of_layers) / len(of_layers)
            torch.testing.assert_close(
                pooled[row, i].double().item(),
                expected,
                rtol=torch.finfo(dtype).eps * 4,
                atol=10.0 ** (exponent - 2 - 4 * (dtype.itemsize > 2)),
            )


@given(given=inputs(), name=NAMES, junk=st.sampled_from([math.nan, math.inf, -math.inf, 6e4, -7.0]), dtype=DTYPES)
def test_padding_and_other_rows_have_no_effect(given, name, junk, dtype):
    states, lengths = given
    states, inputs = states.to(dtype), inputs_of(lengths, states.shape[2])
    mask = inputs["attention_mask"]
    pooling = find_pooling(name, CONFIG)
    pooled = pooling(states, inputs)
    dirty = states.masked_fill(mask[:, :, None] == 0, junk).requires_grad_()
    assert torch.equal(pooling(dirty, inputs), pooled)
    pooling(dirty, inputs).sum().backward()
    assert (dirty.grad[:, mask == 0] == 0).all() and torch.isfinite(dirty.grad).all()
    for row, length in enumerate(lengths):
        alone = pooling(states[:, row : row + 1, :length], inputs_of([length], length))
        torch.testing.assert_close(alone[0], pooled[row])


@pytest.mark.parametrize("name", [name for name in POOLINGS if name != "cls"])
@given(given=inputs(), dtype=DTYPES)
def test_a_sentence_without_tokens_is_zero(name, given, dtype):
    states, _ = given
    pooled = find_pooling(name, CONFIG)(states.to(dtype), inputs_of([0] * states.shape[1], states.shape[2]))
    assert (pooled == 0).all()
