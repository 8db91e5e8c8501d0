"""Poolings against loops over the tokens that are there."""

import pytest
import torch

from simcse_pl.pooling import POOLINGS, USES_ALL_LAYERS


@pytest.fixture
def states_and_mask():
    states = tuple(torch.randn(3, 5, 4) for _ in range(4))  # embeddings and three layers
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    return states, mask


def over_tokens(states, mask, reduce):
    return torch.stack([reduce(row[: int(length)]) for row, length in zip(states, mask.sum(dim=1), strict=True)])


EXPECTED = {
    "cls": lambda states, mask: states[3][:, 0],
    "mean": lambda states, mask: over_tokens(states[3], mask, lambda rows: rows.mean(dim=0)),
    "max": lambda states, mask: over_tokens(states[3], mask, lambda rows: rows.max(dim=0).values),
    "first_last": lambda states, mask: (
        (
            over_tokens(states[1], mask, lambda rows: rows.mean(dim=0))
            + over_tokens(states[3], mask, lambda rows: rows.mean(dim=0))
        )
        / 2
    ),
    "top2": lambda states, mask: (
        (
            over_tokens(states[2], mask, lambda rows: rows.mean(dim=0))
            + over_tokens(states[3], mask, lambda rows: rows.mean(dim=0))
        )
        / 2
    ),
}


@pytest.mark.parametrize("name", POOLINGS)
def test_equals_a_loop_over_the_tokens(name, states_and_mask):
    states, mask = states_and_mask
    torch.testing.assert_close(POOLINGS[name](states, mask), EXPECTED[name](states, mask))


@pytest.mark.parametrize("name", POOLINGS)
def test_padding_and_unused_layers_do_not_matter(name, states_and_mask):
    states, mask = states_and_mask
    noisy = [torch.where(mask.unsqueeze(-1).bool(), layer, 1e4) for layer in states]
    noisy[0] = noisy[0] + 1
    torch.testing.assert_close(POOLINGS[name](noisy, mask), POOLINGS[name](states, mask), atol=1e-5, rtol=1e-5)
    if name not in USES_ALL_LAYERS:
        assert torch.equal(POOLINGS[name](states[-1:], mask), POOLINGS[name](states, mask))


def test_first_last_of_one_layer_is_its_mean(states_and_mask):
    states, mask = states_and_mask
    torch.testing.assert_close(POOLINGS["first_last"](states[:2], mask), POOLINGS["mean"](states[:2], mask))


@pytest.mark.parametrize("name", ["mean", "first_last", "top2"])
def test_a_sentence_without_tokens_is_zero_and_not_nan(name, states_and_mask):
    states, mask = states_and_mask
    assert POOLINGS[name](states, torch.zeros_like(mask)).abs().max() == 0
