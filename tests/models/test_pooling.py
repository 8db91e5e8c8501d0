"""Poolings by name. tests/properties/test_pooling.py compares them with a loop over tokens."""

import pytest
import torch

from simcse_pl.models.pooling import POOLINGS, find_pooling
from simcse_pl.utils.errors import UserError


def test_named_poolings_equal_layers_by_number():
    states = tuple(torch.randn(3, 5, 4) for _ in range(4))  # embeddings and three layers
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    for name, layers in {"first_last": "layers_1_3", "top2": "layers_2_3", "mean": "layers_3"}.items():
        assert torch.equal(find_pooling(name, 3)(states, mask), find_pooling(layers, 3)(states, mask))
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
    with pytest.raises(UserError, match="^pooling=top2: the model has one layer only$"):
        find_pooling("top2", 1)
