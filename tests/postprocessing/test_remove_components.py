"""Removal of principal components against numpy's singular vectors, in float64."""

import numpy as np
import pytest
import torch

from simcse_pl.postprocessing.remove_components import RemoveComponents


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
