"""Poolings by name and with padding on either side. tests/properties/test_pooling.py has a loop over tokens."""

import pytest
import torch

from simcse_pl.models.pooling import POOLINGS, find_pooling
from simcse_pl.models.templates import SENTENCE_MASK
from simcse_pl.utils.errors import UserError


def test_named_poolings_equal_layers_by_number():
    states = tuple(torch.randn(3, 5, 4) for _ in range(4))  # embeddings and three layers
    inputs = {"attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])}
    for name, layers in {"first_last": "layers_1_3", "top2": "layers_2_3", "mean": "layers_3"}.items():
        assert torch.equal(find_pooling(name, 3)(states, inputs), find_pooling(layers, 3)(states, inputs))
    assert torch.equal(find_pooling("first_last", 1)(states[:2], inputs), POOLINGS["mean"](states[:2], inputs))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("average", "pooling=average: choose one of cls, mean, .* mask, mask_2, layers like layers_1_2, or your"),
        *((name, f"pooling={name}: choose one of") for name in ("mask_0", "mask_01", "masks", "torch.", "a..b", "a.1")),
        ("torch.no_such_function", "^pooling=torch.no_such_function: cannot import it: module 'torch' has no attrib"),
        ("math.pi", "^pooling=math.pi: it is not a function$"),
        *((f"layers{end}", f"pooling=layers{end}: choose") for end in ("", "_a", "_-1", "_01", "_1.5", "_\u0661")),
        ("layers_1\n", r"pooling=layers_1\\n: choose one of"),
        ("layers_1_2_1", "pooling=layers_1_2_1: name each layer once"),
    ],
)
def test_invalid_names_are_errors(name, message):
    with pytest.raises(UserError, match=message):
        find_pooling(name, 3)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_mask_tokens_of_a_template_are_found_with_padding_on_either_side(side):
    """A mask token in the sentence itself does not count."""
    mask, pad = 7, 0
    rows = [[1, mask, 5, mask, mask, 2], [1, 5, mask, 6, mask, 3, mask, 2]]  # the sentences: [mask, 5] and [5, mask, 6]
    own = [[0, 1, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0, 0, 0]]
    expected = {"mask": (3, 4), "mask_2": (4, 6)}

    def pad_(values):
        gap = [pad] * (9 - len(values))
        return gap + values if side == "left" else values + gap

    inputs = {"input_ids": torch.tensor([*map(pad_, rows)]), SENTENCE_MASK: torch.tensor([*map(pad_, own)])}
    inputs["attention_mask"] = (inputs["input_ids"] != pad).long()
    states = torch.randn(2, 9, 4)
    for name, places in expected.items():
        found = find_pooling(name, 3, mask)([states], inputs)
        for row, place in enumerate(places):
            start = 9 - len(rows[row]) if side == "left" else 0
            assert torch.equal(found[row], states[row, start + place])


@pytest.mark.parametrize("name", ["mean", "max", "last_token", "weighted_mean", "span"])
def test_padding_on_the_left_and_right_gives_equal_vectors(name):
    lengths = [5, 3, 1]
    tokens = [torch.randn(length, 4) for length in lengths]
    found = []
    for left in (True, False):
        states, mask = torch.randn(3, 6, 4), torch.zeros(3, 6, dtype=torch.int64)
        for row, own in enumerate(tokens):
            place = slice(6 - len(own), 6) if left else slice(len(own))
            states[row, place], mask[row, place] = own, 1
        found.append(find_pooling(name, 3)([states], {"attention_mask": mask, SENTENCE_MASK: mask}))
    torch.testing.assert_close(*found)


def test_top2_needs_two_layers():
    with pytest.raises(UserError, match="^pooling=top2: the model has one layer only$"):
        find_pooling("top2", 1)
