"""The dimension-wise contrast against a loop in float64, and with several positives."""

import math

import pytest
import torch

from simcse_pl.losses.dimension_contrast import DimensionContrast, dimension_contrast
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.roles import Role
from tests.conftest import embedded
from tests.losses.loops import log_sum_exp, similarity, standardized


def loop(first, second, temperature):
    one, other = (list(map(standardized, zip(*rows, strict=True))) for rows in (first, second))
    losses = []
    for c, column in enumerate(one):
        logits = [similarity(column, another, "dot") / len(column) / temperature for another in other]
        losses.append(log_sum_exp(logits) - logits[c])
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
