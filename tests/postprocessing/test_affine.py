"""Principal directions against numpy, without those due to rounding."""

import numpy as np
import pytest
import torch

from simcse_pl.postprocessing.affine import principal_directions


@pytest.mark.parametrize("center", [True, False])
def test_directions_and_variances_equal_numpys(center):
    x = torch.randn(200, 7) @ torch.randn(7, 7) + 3
    mean, variances, directions = principal_directions(x, center)
    rows = x.double().numpy() - (x.double().numpy().mean(axis=0) if center else 0)
    _, singular, expected = np.linalg.svd(rows, full_matrices=False)
    np.testing.assert_allclose(variances, singular**2 / 199)
    np.testing.assert_allclose((directions.T @ torch.from_numpy(expected.T)).abs(), np.eye(7), atol=1e-7)
    np.testing.assert_allclose(mean, x.double().numpy().mean(axis=0) if center else np.zeros(7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-3, 1e4])
@pytest.mark.parametrize(
    ("embeddings", "rank"),
    [
        (lambda: torch.randn(50, 8), 8),
        (lambda: torch.randn(50, 8) + 100, 8),
        (lambda: torch.randn(5, 8), 4),
        (lambda: torch.cat([torch.randn(50, 5), torch.full((50, 3), 0.3)], dim=1), 5),
        (lambda: (y := torch.randn(50, 5), torch.cat([y, y[:, :3] * 0.7], dim=1))[1], 5),
        (lambda: torch.randn(50, 8) * torch.logspace(0, -4, 8), 8),
        (lambda: torch.full((50, 8), 0.1), 0),
    ],
)
def test_directions_without_variance_are_left_out(embeddings, rank, size, dtype):
    mean, variances, directions = principal_directions(embeddings().to(dtype) * size)
    assert variances.shape == (rank,) and directions.shape == (8, rank) and mean.shape == (8,)
    assert (variances.diff() <= 0).all()
