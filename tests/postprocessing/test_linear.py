"""Whitening of few rows, and the removal of components against numpy; tests/fidelity has the official whitening."""

import logging

import numpy as np
import pytest
import torch

from simcse_pl.postprocessing.linear import RemoveComponents, Whitening


def embeddings(n: int, dim: int) -> torch.Tensor:
    """Correlated, of very different variances, far from 0."""
    return torch.randn(n, dim) * torch.logspace(0, -3, dim) @ torch.linalg.qr(torch.randn(dim, dim)).Q + 0.5


def test_fewer_rows_than_dimensions_are_whitened_with_a_warning(caplog):
    x = embeddings(10, 48)
    with caplog.at_level(logging.WARNING):
        z = Whitening().fit(x).transform(x).double()
    assert "the 10 fitted embeddings become equally far apart" in caplog.text
    torch.testing.assert_close(z.T.cov(), torch.eye(9, dtype=torch.float64), atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.pdist(z), torch.full((45,), 18**0.5, dtype=torch.float64), atol=1e-4, rtol=0)
    caplog.clear()
    Whitening().fit(embeddings(50, 48))
    Whitening(4).fit(x)
    assert not caplog.records


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("count", [1, 3, 11])
def test_top_components_are_removed_one_by_one(count, center):
    x, new = torch.randn(2, 200, 12).mul(torch.linspace(3, 1, 12)).add(0.7)
    rows = x.double().numpy()
    mean = rows.mean(axis=0) * center
    expected = new.double().numpy() - mean
    for u in np.linalg.svd(rows - mean, full_matrices=False)[2][:count]:
        expected = expected - np.outer(expected @ u, u)
    removed = RemoveComponents(count, center).fit(x).transform(new)
    np.testing.assert_allclose(removed, expected, atol=1e-5)
