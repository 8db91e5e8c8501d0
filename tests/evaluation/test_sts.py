"""The measures of scored pairs with a random encoder; tests/test_claims.py has scores on real data."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr, spearmanr

from simcse_pl.data.senteval.sts_sets import ScoredPair, StsTask
from simcse_pl.evaluation import metrics
from simcse_pl.evaluation.sts import BANDS, evaluate_geometry, evaluate_sts

SCORES = [0.0, 3.7, 1.0, 1.9, 2.5, 3.0, 0.5, 4.0, 4.2, 4.8, 5.0, 5.0]
PAIRS = [ScoredPair(str(i), str(i + 1), score) for i, score in enumerate(SCORES)]
TASK = StsTask("STS-B", "test", {"x": PAIRS[:5], "y": PAIRS[5:]})


def encode(numbers):
    rows = [torch.randn(6, generator=torch.Generator().manual_seed(int(number))) for number in numbers]
    return torch.stack(rows) * torch.tensor([3.0, 1, 1, 1, 1, 0.2]) + 0.5


def expected(pairs):
    cosines = [1 - cosine(*encode([pair.first, pair.second]).double()) for pair in pairs]
    scores = [pair.score for pair in pairs]
    return spearmanr(cosines, scores).statistic, pearsonr(cosines, scores).statistic


def test_correlations_over_all_pairs_and_over_subsets():
    result = evaluate_sts(encode, TASK)
    x, y = expected(PAIRS[:5]), expected(PAIRS[5:])
    assert (result.task, result.split, result.pairs) == ("STS-B", "test", 12)
    assert (result.all.spearman, result.all.pearson) == pytest.approx(expected(PAIRS))
    for subset, own in (("x", x), ("y", y)):
        assert (result.subsets[subset].spearman, result.subsets[subset].pearson) == pytest.approx(own)
    assert [subset.pairs for subset in result.subsets.values()] == [5, 7]
    assert (result.mean.spearman, result.mean.pearson) == pytest.approx(np.mean([x, y], axis=0))
    assert (result.wmean.spearman, result.wmean.pearson) == pytest.approx((5 * np.array(x) + 7 * np.array(y)) / 12)


def test_geometry_is_that_of_all_sentences_and_positives_score_above_4():
    first, second = encode(range(12)), encode(range(1, 13))
    x = torch.cat([first, second])
    w = x.double().numpy() / np.linalg.norm(x.double().numpy(), axis=1, keepdims=True)
    result = evaluate_geometry(encode, TASK)
    assert (result.data, result.sentences, result.positives) == ("STS-B test", 24, 4)  # not 4 itself
    assert result.alignment == pytest.approx(metrics.alignment(first[8:], second[8:]).item())
    assert result.uniformity == pytest.approx(metrics.uniformity(x).item())
    assert result.mean_cosine == pytest.approx(((w @ w.T).sum() - 24) / (24 * 23))
    assert result.spectrum == metrics.singular_spectrum(x).tolist()
    assert result.effective_rank == metrics.effective_rank(metrics.singular_spectrum(x)).item()
    variances = metrics.principal_variances(x)
    assert result.isoscore == metrics.isoscore(variances).item()
    assert result.top_variance == pytest.approx({str(k): float(variances[:k].sum() / variances.sum()) for k in (1, 3)})
    assert metrics.gram_bound(x).items() <= vars(result).items()
    for low, band in enumerate(BANDS):
        rows = [i for i, score in enumerate(SCORES) if low <= score < low + 1 or score == low + 1 == 5]
        assert result.similarities[band] == pytest.approx([w[i] @ w[i + 12] for i in rows])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("predicted", [np.full(10, 0.7), 0.7 + 1e-16 * np.arange(10), np.ones(1)])
def test_constant_cosines_and_single_pairs_have_no_correlation(predicted):
    assert all(map(math.isnan, metrics.correlations(predicted, np.arange(len(predicted)))))
    assert metrics.correlations(0.7 + 1e-9 * np.arange(10), np.arange(10))[0] == pytest.approx(1)
