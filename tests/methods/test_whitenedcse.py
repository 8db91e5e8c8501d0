"""WhitenedCSE: the gradient of the whitening, and small batches."""

import pytest
import torch

from simcse_pl.methods.whitenedcse import group_whitening


@pytest.mark.parametrize("vectors", [torch.randn(7, 6), torch.cat([torch.eye(6), -torch.eye(6)])])
def test_the_gradient_passes_through_the_covariance(vectors):
    """Also if all its eigenvalues are equal."""
    order = torch.randperm(6)
    assert torch.autograd.gradcheck(lambda x: group_whitening(x, order, 2), vectors.double().requires_grad_())


@pytest.mark.parametrize(("rows", "precision"), [(1, torch.float32), (2, torch.bfloat16), (4, torch.float64)])
def test_fewer_rows_than_dimensions_are_finite_and_0_where_rows_do_not_differ(rows, precision):
    vectors = (torch.randn(rows, 6) * 10 + 5).to(precision).requires_grad_()
    found = group_whitening(vectors, torch.arange(6), 1)
    (found * torch.randn(rows, 6)).sum().backward()
    assert vectors.grad.isfinite().all() and vectors.grad.abs().max() < 100
    values = torch.linalg.eigvalsh(found.double().mT @ found.double() / rows)
    expected = torch.tensor([0.0] * (7 - rows) + [1.0] * (rows - 1)).double()
    torch.testing.assert_close(values, expected, atol=1e-3, rtol=0)
