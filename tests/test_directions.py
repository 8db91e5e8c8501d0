"""Vectors of length 1 against the definition, in every precision and at the ends of its range."""

import pytest
import torch

from simcse_pl.directions import at_least_float32, directions


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_half_precision_alone_is_taken_up(dtype, expected):
    x = torch.randn(3, 4).to(dtype)
    taken = at_least_float32(x)
    assert taken.dtype == directions(x).dtype == expected and torch.equal(taken.to(dtype), x)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5)])
@pytest.mark.parametrize("size", [1e-15, 1.0, 1e15])
def test_a_direction_is_a_vector_over_its_length(shape, size):
    x = torch.randn(shape) * size
    expected = x.double() / x.double().square().sum(dim=-1, keepdim=True).sqrt()
    torch.testing.assert_close(directions(x), expected.float())


def test_zeros_have_no_direction_and_no_gradient():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    unit = directions(x)
    assert unit.tolist() == [[0, 0], [pytest.approx(0.6), pytest.approx(0.8)]]
    unit.sum().backward()
    assert (x.grad[0] == 0).all()
    torch.autograd.gradcheck(directions, torch.randn(3, 4, dtype=torch.float64, requires_grad=True))
