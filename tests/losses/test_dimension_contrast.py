"""The dimension-wise contrast against a loop in float64, and its errors."""

import math

import pytest
import torch

from simcse_pl.losses.dimension_contrast import DimensionContrast, dimension_contrast
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.roles import Role
from simcse_pl.utils.errors import UserError
from tests.conftest import embedded


def loop(first, second, temperature):
    def standardized(rows):
        columns = list(zip(*rows, strict=True))
        means = [math.fsum(column) / len(column) for column in columns]
        scales = [
            math.sqrt(math.fsum((x - mean) ** 2 for x in column) / len(column) + 1e-5)
            for column, mean in zip(columns, means, strict=True)
        ]
        return [
            [(x - mean) / scale for x in column] for column, mean, scale in zip(columns, means, scales, strict=True)
        ]

    one, other = standardized(first), standardized(second)
    losses = []
    for c, column in enumerate(one):
        row = [math.fsum(x * y for x, y in zip(column, another, strict=True)) / len(column) for another in other]
        logits = [value / temperature for value in row]
        losses.append(math.log(math.fsum(map(math.exp, logits))) - logits[c])
    return math.fsum(losses) / len(losses)


@pytest.mark.parametrize(("rows", "temperature"), [(7, 5.0), (7, 0.2), (2, 5.0), (1, 5.0)])
def test_it_equals_a_loop(rows, temperature):
    first, second = torch.randn(2, rows, 4, dtype=torch.float64) * torch.tensor([0.01, 1.0, 3.0, 0.5]) + 2
    expected = loop(first.tolist(), second.tolist(), temperature)
    assert dimension_contrast(first, second, temperature).item() == pytest.approx(expected, rel=1e-9)
    assert dimension_contrast(first.float(), second.float(), temperature).item() == pytest.approx(expected, rel=1e-3)
    if rows > 2:
        first.requires_grad_(), second.requires_grad_()
        assert torch.autograd.gradcheck(lambda *x: dimension_contrast(*x, temperature), (first, second))


def test_equal_rows_have_a_finite_gradient():
    x = torch.randn(1, 2, 4).repeat(3, 1, 1).requires_grad_()
    DimensionContrast()(None, embedded(x)).backward()
    assert x.grad.isfinite().all()


def test_it_is_the_mean_over_the_positives():
    roles = (Role.POSITIVE, Role.ANCHOR, Role.NEGATIVE, Role.POSITIVE)
    x = torch.randn(5, 4, 3, dtype=torch.float64)
    expected = sum(loop(x[:, 1].tolist(), x[:, view].tolist(), 5.0) for view in (0, 3)) / 2
    assert DimensionContrast()(None, EmbeddedBatch(x, roles, {})).item() == pytest.approx(expected, rel=1e-9)


def test_rows_without_a_positive_are_an_error():
    with pytest.raises(UserError, match="^auxiliary.dimension_contrast needs a positive: name one in data.roles, or"):
        DimensionContrast().check_rows((Role.ANCHOR, Role.NEGATIVE), None)
