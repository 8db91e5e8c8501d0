"""The rank of principal directions; tests/postprocessing/test_whitening.py has their values."""

import pytest
import torch

from simcse_pl.postprocessing.post_process import principal_directions


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
