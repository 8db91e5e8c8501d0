"""The STS protocol against scipy with a random encoder; tests/test_claims.py has scores on real data."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr, spearmanr

from simcse_pl.data.senteval.sts_sets import ScoredPair, StsTask
from simcse_pl.evaluation.metrics import correlation
from simcse_pl.evaluation.sts import evaluate_sts


def encode(numbers):
    return torch.stack([torch.randn(5, generator=torch.Generator().manual_seed(int(n))) for n in numbers])


PAIRS = [ScoredPair(str(i), str(i + 1), float(i * 7 % 5)) for i in range(12)]
TASK = StsTask("one", "test", {"x": PAIRS[:5], "y": PAIRS[5:]})


def expected(pairs):
    vectors = [encode([pair.first, pair.second]).double() for pair in pairs]
    cosines = [1 - cosine(*own) for own in vectors]
    scores = [pair.score for pair in pairs]
    return spearmanr(cosines, scores).statistic, pearsonr(cosines, scores).statistic


def test_correlations_over_all_pairs_and_over_subsets():
    result = evaluate_sts(encode, TASK)
    x, y = expected(PAIRS[:5]), expected(PAIRS[5:])
    assert (result.task, result.split, result.pairs) == ("one", "test", 12)
    assert (result.all.spearman, result.all.pearson) == pytest.approx(expected(PAIRS))
    for subset, own in (("x", x), ("y", y)):
        assert (result.subsets[subset].spearman, result.subsets[subset].pearson) == pytest.approx(own)
    assert [subset.pairs for subset in result.subsets.values()] == [5, 7]
    assert (result.mean.spearman, result.mean.pearson) == pytest.approx(np.mean([x, y], axis=0))
    assert (result.wmean.spearman, result.wmean.pearson) == pytest.approx((5 * np.array(x) + 7 * np.array(y)) / 12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("predicted", [np.full(10, 0.7), 0.7 + 1e-16 * np.arange(10), np.ones(1)])
def test_constant_cosines_and_single_pairs_have_no_correlation(predicted):
    result = correlation(predicted, np.arange(len(predicted)))
    assert math.isnan(result.spearman) and math.isnan(result.pearson)
    assert correlation(0.7 + 1e-9 * np.arange(10), np.arange(10)).spearman == pytest.approx(1)
