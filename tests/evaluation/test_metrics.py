"""Alignment, uniformity and isotropy against torch.pdist, numpy and the papers' formulas written out."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from simcse_pl.evaluation import metrics as geometry
from simcse_pl.evaluation.metrics import (
    alignment,
    effective_rank,
    gram_bound,
    isoscore,
    principal_variances,
    singular_spectrum,
    uniformity,
)


def test_alignment_is_the_mean_squared_distance_on_the_sphere():
    x, y = torch.randn(2, 9, 6) * 5
    expected = (F.normalize(x) - F.normalize(y)).norm(dim=1).pow(2).mean()
    torch.testing.assert_close(alignment(x, y), expected)


@pytest.mark.parametrize("rows_at_a_time", [1, 4, 2048])
def test_uniformity_is_over_all_pairs(rows_at_a_time, monkeypatch):
    monkeypatch.setattr(geometry, "_ROWS_AT_A_TIME", rows_at_a_time)
    x = torch.randn(11, 6) * 5
    expected = torch.pdist(F.normalize(x)).pow(2).mul(-2).exp().mean().log()
    torch.testing.assert_close(uniformity(x), expected)


def test_what_is_known_without_computing():
    x = torch.randn(5, 6)
    assert alignment(x, x).item() == 0
    assert uniformity(x[:1].expand(4, 6)).item() == pytest.approx(0, abs=1e-6)
    assert alignment(x, -x).item() == pytest.approx(4)
    assert uniformity(torch.stack([x[0], -x[0]])).item() == pytest.approx(-8)


def test_too_few_rows_give_no_number():
    assert uniformity(torch.randn(1, 3)).isnan() and uniformity(torch.empty(0, 3)).isnan()
    assert alignment(torch.empty(0, 3), torch.empty(0, 3)).isnan()


def test_spectrum_is_of_normalized_rows_over_its_largest():
    x = torch.randn(9, 6) * torch.arange(1.0, 10).unsqueeze(1)
    singular = np.linalg.svd(F.normalize(x.double()).numpy(), compute_uv=False)
    assert singular_spectrum(x).numpy() == pytest.approx(singular / singular[0])


@pytest.mark.parametrize("k", [1, 5])
def test_effective_rank_counts_equal_directions(k):
    assert effective_rank(torch.tensor([3.0] * k + [0.0] * 4)).item() == pytest.approx(k)


def rudmans_isoscore(points):
    """Their algorithm 1, step by step."""
    n = points.shape[1]
    reoriented = points @ np.linalg.eigh(np.cov(points.T))[1]
    diagonal = np.diag(np.cov(reoriented.T))
    normalized = diagonal * np.sqrt(n) / np.linalg.norm(diagonal)
    defect = np.linalg.norm(normalized - np.ones(n)) / np.sqrt(2 * (n - np.sqrt(n)))
    phi = (n - defect**2 * (n - np.sqrt(n))) ** 2 / n**2
    return (n * phi - 1) / (n - 1)


def test_isoscore_is_rudmans():
    x = torch.randn(200, 7, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 3, 7) + 4
    score = isoscore(principal_variances(x))
    assert score.item() == pytest.approx(rudmans_isoscore(x.double().numpy()))
    assert 0.1 < score < 0.9
    assert isoscore(torch.tensor([2.0, 2.0, 2.0])).item() == pytest.approx(1)
    assert isoscore(torch.tensor([2.0, 0.0, 0.0])).item() == pytest.approx(0)


@pytest.mark.parametrize("rows_at_a_time", [4, 2048])
def test_gram_bound(rows_at_a_time, monkeypatch):
    monkeypatch.setattr(geometry, "_ROWS_AT_A_TIME", rows_at_a_time)
    x = torch.randn(11, 6, generator=torch.Generator().manual_seed(0)) * 5 + 1
    w = F.normalize(x.double()).numpy()
    gram = w @ w.T
    bound = gram_bound(x)
    assert bound.gram_sum == pytest.approx(gram.sum())
    assert bound.largest_eigenvalue == pytest.approx(np.linalg.eigvalsh(gram)[-1])
    assert (bound.trace, bound.nonnegative) == pytest.approx((11, (gram >= 0).mean()))


def test_the_bound_holds_where_all_cosines_are_positive():
    bound = gram_bound(torch.rand(50, 6, generator=torch.Generator().manual_seed(0)))
    assert bound.nonnegative == 1
    assert bound.gram_sum / 50 <= bound.largest_eigenvalue <= bound.gram_sum


HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-3, 1.0, 6e4])
def test_every_precision_is_measured_alike(dtype, size):
    x, y = (torch.randn(2, 40, 300).sign() * size).to(dtype)
    for measured, exact in (
        (alignment(x, y), alignment(x.double(), y.double())),
        (uniformity(x), uniformity(x.double())),
    ):
        assert measured.dtype == torch.promote_types(dtype, torch.float32)
        torch.testing.assert_close(measured.double(), exact, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
def test_a_row_of_zeros_stands_at_the_centre_of_the_sphere(dtype):
    zeros, x = torch.zeros(3, 4, dtype=dtype), torch.eye(4, dtype=dtype)[:3]
    assert alignment(zeros, x) == 1 and alignment(zeros, zeros) == 0
    assert uniformity(zeros) == 0  # collapsed, as where all are equal
    assert uniformity(torch.cat([zeros[:1], x[:1]])).item() == pytest.approx(-2)
    bound = gram_bound(zeros)
    assert (bound.gram_sum, bound.largest_eigenvalue, bound.trace, bound.nonnegative) == (0, 0, 0, 1)


def test_embeddings_without_direction_or_variance_have_no_isotropy():
    assert singular_spectrum(torch.zeros(3, 4)).isnan().all()
    assert effective_rank(torch.zeros(4)).isnan()
    assert isoscore(principal_variances(torch.ones(5, 4))).isnan()
    alone = principal_variances(torch.ones(1, 4))
    assert alone.shape == (4,) and alone.dtype == torch.float64 and alone.isnan().all()
    assert principal_variances(torch.tensor([[0.0, 1.0], [0.0, 3.0]])).tolist() == pytest.approx([2, 0])


@pytest.mark.parametrize("x", [torch.ones(6, 4), torch.full((6, 4), 0.1), torch.full((6, 4), 6e4).half()])
def test_embeddings_that_are_all_equal_are_one_direction(x):
    assert alignment(x, x) == 0 and uniformity(x).item() == pytest.approx(0, abs=1e-6)
    assert effective_rank(singular_spectrum(x)).item() == pytest.approx(1)
    bound = gram_bound(x)
    assert (bound.gram_sum, bound.largest_eigenvalue, bound.trace) == pytest.approx((36, 6, 6))
