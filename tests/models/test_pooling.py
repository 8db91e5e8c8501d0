"""Poolings by name. tests/properties/test_pooling.py compares them with a loop over tokens."""

import pytest
import torch

from simcse_pl.models.pooling import POOLINGS, find_pooling
from simcse_pl.utils.errors import UserError


@pytest.fixture
def states_and_mask():
    states = tuple(torch.randn(3, 5, 4) for _ in range(4))  # embeddings and three layers
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    return states, mask


def test_layers_that_are_not_named_do_not_matter(states_and_mask):
    states, mask = states_and_mask
    for name in (*POOLINGS, "layers_3_0_1"):
        pooling = find_pooling(name, 3)
        others = [n for n in range(4) if n not in [layer % 4 for layer in pooling.layers]]
        changed = [layer + 1 if n in others else layer for n, layer in enumerate(states)]
        assert torch.equal(pooling(changed, mask), pooling(states, mask))
        if pooling.reads_last_layer_alone:
            assert torch.equal(pooling(states[-1:], mask), pooling(states, mask))


def test_named_poolings_equal_layers_by_number(states_and_mask):
    states, mask = states_and_mask
    assert torch.equal(find_pooling("first_last", 3)(states, mask), find_pooling("layers_1_3", 3)(states, mask))
    assert torch.equal(find_pooling("top2", 3)(states, mask), find_pooling("layers_2_3", 3)(states, mask))
    assert torch.equal(find_pooling("mean", 3)(states, mask), find_pooling("layers_3", 3)(states, mask))
    assert torch.equal(find_pooling("first_last", 1)(states[:2], mask), POOLINGS["mean"](states[:2], mask))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("average", "pooling=average: choose one of cls, mean, first_last, top2, max, or layers like layers_1_2"),
        *((f"layers{end}", f"pooling=layers{end}: choose") for end in ("", "_a", "_-1", "_01", "_1.5", "_\u0661")),
        ("layers_1\n", r"pooling=layers_1\\n: choose one of"),
        ("layers_1_2_1", "pooling=layers_1_2_1: name each layer once"),
        ("layers_1_4", "pooling=layers_1_4: the model has layers 1 to 3, and 0, its embeddings"),
    ],
)
def test_invalid_names_are_errors(name, message):
    with pytest.raises(UserError, match=message):
        find_pooling(name, 3)


def test_top2_needs_two_layers():
    assert find_pooling("top2", 2) == POOLINGS["top2"]
    with pytest.raises(UserError, match="^pooling=top2: the model has one layer only$"):
        find_pooling("top2", 1)
