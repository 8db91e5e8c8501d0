"""The geometry of scored pairs with a random encoder."""

import numpy as np
import pytest
import torch

from simcse_pl.evaluation import metrics
from simcse_pl.evaluation.sts import ScoredPair, StsTask
from simcse_pl.lab.geometry import BANDS, GeometryTask, effective_rank, singular_spectrum
from tests.support.helpers import random_vectors

SCORES = [0.0, 3.7, 1.0, 1.9, 2.5, 3.0, 0.5, 4.0, 4.2, 4.8, 5.0, 5.0]
PAIRS = [ScoredPair(str(i), str(i + 1), score) for i, score in enumerate(SCORES)]
TASK = StsTask("STS-B", "test", {"x": PAIRS[:5], "y": PAIRS[5:]})


def encode(numbers):
    return random_vectors(numbers) * torch.tensor([3.0, 1, 1, 1, 1, 0.2]) + 0.5


def test_geometry_is_that_of_all_sentences_and_positives_score_above_4():
    first, second = encode(range(12)), encode(range(1, 13))
    x = torch.cat([first, second])
    w = x.double().numpy() / np.linalg.norm(x.double().numpy(), axis=1, keepdims=True)
    result = GeometryTask(TASK)(encode)
    assert (result.data, result.sentences, result.positives) == ("STS-B test", 24, 4)  # not 4 itself
    assert result.alignment == pytest.approx(metrics.alignment(first[8:], second[8:]).item())
    assert result.uniformity == pytest.approx(metrics.uniformity(x).item())
    assert result.mean_cosine == pytest.approx(((w @ w.T).sum() - 24) / (24 * 23))
    assert result.spectrum == singular_spectrum(x).tolist()
    assert result.effective_rank == effective_rank(singular_spectrum(x)).item()
    assert metrics.gram_bound(x).items() <= vars(result).items()
    for low, band in enumerate(BANDS):
        rows = [i for i, score in enumerate(SCORES) if low <= score < low + 1 or score == low + 1 == 5]
        assert result.similarities[band] == pytest.approx([w[i] @ w[i + 12] for i in rows])


def test_spectrum_and_effective_rank():
    x = encode(range(9))
    singular = np.linalg.svd(torch.nn.functional.normalize(x.double()).numpy(), compute_uv=False)
    assert singular_spectrum(x).numpy() == pytest.approx(singular / singular[0])
    p = singular / singular.sum()
    assert effective_rank(singular_spectrum(x)).item() == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    assert effective_rank(torch.tensor([3.0] * 5 + [0.0] * 4)).item() == pytest.approx(5)
