"""Removal of principal components against numpy's singular vectors, in float64."""

import numpy as np
import pytest
import torch

from simcse_pl.postprocessing.remove_components import RemoveComponents
from simcse_pl.utils.errors import UserError


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


def test_without_centering_the_first_component_is_close_to_a_large_mean():
    x = torch.randn(200, 12) + 50
    removed = RemoveComponents(1, center=False).fit(x).transform(x)
    assert removed.mean(dim=0).norm() < 0.01 * x.mean(dim=0).norm()
    torch.testing.assert_close((removed @ torch.ones(12)).abs().max(), torch.tensor(0.0), atol=1.0, rtol=0)


def test_what_is_left_has_no_variance_in_the_components():
    x = torch.randn(200, 12) * torch.linspace(3, 1, 12)
    left = RemoveComponents(4).fit(x).transform(x).double()
    assert torch.linalg.matrix_rank(left, rtol=1e-5) == 8
    torch.testing.assert_close(left.mean(dim=0), torch.zeros(12, dtype=torch.float64), atol=1e-5, rtol=0)


@pytest.mark.parametrize("count", [0, -1])
def test_an_impossible_count_is_told(count):
    with pytest.raises(UserError, match=f"postprocess.count={count}: it must be at least 1"):
        RemoveComponents(count)


@pytest.mark.parametrize(
    ("x", "count", "center", "directions"),
    [
        (torch.randn(50, 4), 4, True, 4),
        (torch.randn(50, 4), 9, True, 4),
        (torch.randn(3, 8), 2, True, 2),
        (torch.randn(3, 8), 3, False, 3),
        (torch.ones(5, 4), 1, True, 0),
        (torch.ones(5, 4), 1, False, 1),
    ],
)
def test_removing_all_there_is_is_told(x, count, center, directions):
    with pytest.raises(UserError, match=f"postprocess.count={count}: the {len(x)} embeddings vary in {directions} "):
        RemoveComponents(count, center).fit(x)


def test_one_direction_is_left_where_there_is_one_more():
    x = torch.randn(3, 8)
    assert torch.linalg.matrix_rank(RemoveComponents(1).fit(x).transform(x), rtol=1e-4) == 1
