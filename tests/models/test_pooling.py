"""Poolings against loops over the tokens that are there."""

import pytest
import torch

from simcse_pl.models.pooling import POOLINGS, find_pooling
from simcse_pl.utils.errors import UserError


@pytest.fixture
def states_and_mask():
    states = tuple(torch.randn(3, 5, 4) for _ in range(4))  # embeddings and three layers
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    return states, mask


def over_tokens(states, mask, reduce):
    return torch.stack([reduce(row[: int(length)]) for row, length in zip(states, mask.sum(dim=1), strict=True)])


def mean_of_layers(*layers):
    def expected(states, mask):
        return sum(over_tokens(states[n], mask, lambda rows: rows.mean(dim=0)) for n in layers) / len(layers)

    return expected


EXPECTED = {
    "cls": lambda states, mask: states[3][:, 0],
    "mean": mean_of_layers(3),
    "max": lambda states, mask: over_tokens(states[3], mask, lambda rows: rows.max(dim=0).values),
    "first_last": mean_of_layers(1, 3),
    "top2": mean_of_layers(2, 3),
    "layers_1_3": mean_of_layers(1, 3),
    "layers_3_0_1": mean_of_layers(0, 1, 3),
    "layers_2": mean_of_layers(2),
}


def test_every_pooling_is_tested():
    assert set(POOLINGS) <= set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_equals_a_loop_over_the_tokens(name, states_and_mask):
    states, mask = states_and_mask
    torch.testing.assert_close(find_pooling(name, 3)(states, mask), EXPECTED[name](states, mask))


@pytest.mark.parametrize("name", EXPECTED)
def test_padding_and_layers_not_named_do_not_matter(name, states_and_mask):
    states, mask = states_and_mask
    pooling = find_pooling(name, 3)
    noisy = [torch.where(mask.unsqueeze(-1).bool(), layer, 1e4) for layer in states]
    for layer in range(4):
        if layer not in [n % 4 for n in pooling.layers]:
            noisy[layer] = noisy[layer] + 1
    torch.testing.assert_close(pooling(noisy, mask), pooling(states, mask), atol=1e-5, rtol=1e-5)
    if pooling.reads_last_layer_alone:
        assert torch.equal(pooling(states[-1:], mask), pooling(states, mask))


def test_first_and_last_are_layers_by_number(states_and_mask):
    states, mask = states_and_mask
    assert torch.equal(find_pooling("first_last", 3)(states, mask), find_pooling("layers_1_3", 3)(states, mask))
    assert torch.equal(find_pooling("top2", 3)(states, mask), find_pooling("layers_2_3", 3)(states, mask))
    assert torch.equal(find_pooling("mean", 3)(states, mask), find_pooling("layers_3", 3)(states, mask))


def test_first_last_of_one_layer_is_its_mean(states_and_mask):
    states, mask = states_and_mask
    assert torch.equal(find_pooling("first_last", 1)(states[:2], mask), POOLINGS["mean"](states[:2], mask))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("average", "pooling=average: choose one of cls, mean, first_last, top2, max, or layers like layers_1_2"),
        *((f"layers{end}", f"pooling=layers{end}: choose one of") for end in ("", "_", "_a", "_1_", "__1", "_-1")),
        *((f"layers{end}", f"pooling=layers{end}: choose one of") for end in ("_01", "_1.5", "_\u0661", " 1")),
        ("layers_1\n", r"pooling=layers_1\\n: choose one of"),
        ("layers_1_2_1", "pooling=layers_1_2_1: name each layer once"),
        ("layers_1_4", "pooling=layers_1_4: the model has layers 1 to 3, and 0, its embeddings"),
    ],
)
def test_odd_names_are_told(name, message):
    with pytest.raises(UserError, match=message):
        find_pooling(name, 3)


def test_top2_needs_two_layers():
    assert find_pooling("top2", 2) == POOLINGS["top2"]
    with pytest.raises(UserError, match="^pooling=top2: the model has one layer only$"):
        find_pooling("top2", 1)


@pytest.mark.parametrize("name", ["mean", "max", "first_last", "top2", "layers_0_2"])
def test_a_sentence_without_tokens_is_zero_and_not_nan(name, states_and_mask):
    states, mask = states_and_mask
    assert find_pooling(name, 3)(states, torch.zeros_like(mask)).abs().max() == 0
    pooled = find_pooling(name, 3)(states, mask * torch.tensor([[1], [0], [1]]))
    assert (pooled[1] == 0).all()
    assert torch.equal(pooled[[0, 2]], find_pooling(name, 3)(states, mask)[[0, 2]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", EXPECTED)
def test_the_mean_of_large_numbers_is_in_range_and_of_their_type(name, dtype):
    size = 60_000.0 if dtype == torch.float16 else 1e30
    states = torch.full((4, 2, 511, 3), size, dtype=dtype)  # their sum is not, and bfloat16 has no 511
    pooled = find_pooling(name, 3)(states, torch.ones(2, 511, dtype=torch.int64))
    assert pooled.dtype == dtype
    torch.testing.assert_close(pooled, states[0, :, 0])


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_no_number_in_padding_stays_there(name, states_and_mask):
    states, mask = states_and_mask
    for junk in (torch.nan, torch.inf):
        dirty = [layer.masked_fill(mask.unsqueeze(-1) == 0, junk).requires_grad_() for layer in states]
        pooled = find_pooling(name, 3)(dirty, mask)
        torch.testing.assert_close(pooled, find_pooling(name, 3)(states, mask), rtol=0, atol=0)
        pooled.sum().backward()
        assert all(torch.isfinite(layer.grad).all() for layer in dirty if layer.grad is not None)
