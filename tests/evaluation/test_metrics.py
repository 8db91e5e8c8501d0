"""Alignment, uniformity and isotropy against torch.pdist, numpy and the papers' formulas."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from simcse_pl.evaluation import metrics
from simcse_pl.evaluation.metrics import alignment, gram_bound, uniformity


@pytest.fixture(params=[4, 2048])
def chunk_rows(request, monkeypatch):
    monkeypatch.setattr(metrics, "_CHUNK_ROWS", request.param)


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 5 + 1


def test_uniformity_is_over_all_pairs_and_limits_of_alignment(chunk_rows):
    x = random(11, 6)
    expected = torch.pdist(F.normalize(x)).pow(2).mul(-2).exp().mean().log()
    torch.testing.assert_close(uniformity(x), expected)
    assert uniformity(torch.stack([x[0], -x[0]])).item() == pytest.approx(-8)
    assert uniformity(x[:1]).isnan() and uniformity(x[:0]).isnan()
    assert alignment(x, -x).item() == pytest.approx(4) and alignment(x[:0], x[:0]).isnan()


def test_gram_bound(chunk_rows):
    x = random(11, 6)
    w = F.normalize(x.double()).numpy()
    gram = w @ w.T
    bound = gram_bound(x)
    assert bound["gram_sum"] == pytest.approx(gram.sum())
    assert bound["largest_eigenvalue"] == pytest.approx(np.linalg.eigvalsh(gram)[-1])
    assert (bound["trace"], bound["nonnegative"]) == pytest.approx((11, (gram >= 0).mean()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_all_precisions_agree_with_float64(dtype):
    x, y = ((random(2, 40, 300) - 1).sign() * 6e4).to(dtype)
    measured = torch.stack([alignment(x, y), uniformity(x)])
    exact = torch.stack([alignment(x.double(), y.double()), uniformity(x.double())])
    assert measured.dtype == torch.float32
    torch.testing.assert_close(measured.double(), exact, atol=1e-5, rtol=0)


@pytest.mark.parametrize("predicted", [np.full(10, 0.7), 0.7 + 1e-16 * np.arange(10), np.ones(1)])
def test_constant_cosines_and_single_pairs_have_no_correlation(predicted):
    assert all(map(math.isnan, metrics.correlations(predicted, np.arange(len(predicted)))))
    assert metrics.correlations(0.7 + 1e-9 * np.arange(10), np.arange(10))[0] == pytest.approx(1)
