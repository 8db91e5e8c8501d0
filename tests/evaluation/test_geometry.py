"""The geometry of made-up embeddings, against numpy in float64."""

import math

import numpy as np
import pytest
import torch

from simcse_pl.data.senteval.sts_sets import ScoredPair, StsTask
from simcse_pl.evaluation.geometry import BANDS, evaluate_geometry

SCORES = [0.0, 0.5, 1.0, 1.9, 2.5, 3.0, 3.7, 4.0, 4.2, 4.8, 5.0, 5.0]
TASK = StsTask("STS-B", "test", {"test": [ScoredPair(str(i), str(i + 1), s) for i, s in enumerate(SCORES)]})


def encode(sentences):
    rows = [torch.randn(6, generator=torch.Generator().manual_seed(int(s))) for s in sentences]
    return torch.stack(rows) * torch.tensor([3.0, 1, 1, 1, 1, 0.2]) + 0.5


def matrix():
    """Both sides of every pair, one under the other, and their rows of length 1."""
    x = encode([str(i) for i in range(12)] + [str(i + 1) for i in range(12)]).double().numpy()
    return x, x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def result():
    return evaluate_geometry(encode, TASK)


def test_what_it_is_measured_on(result):
    assert (result.data, result.sentences, result.positives) == ("STS-B test", 24, 4)  # above 4, not 4 itself


def test_alignment_and_uniformity(result):
    _, w = matrix()
    positives = [((w[i] - w[i + 12]) ** 2).sum() for i in range(8, 12)]
    assert result.alignment == pytest.approx(np.mean(positives), rel=1e-5)
    values = [math.exp(-2 * ((w[i] - w[j]) ** 2).sum()) for i in range(24) for j in range(i)]
    assert result.uniformity == pytest.approx(math.log(np.mean(values)), rel=1e-4)


def test_spectrum_and_isotropy(result):
    x, w = matrix()
    singular = np.linalg.svd(w, compute_uv=False)
    assert result.spectrum == pytest.approx(singular / singular[0])
    shares = singular / singular.sum()
    assert result.effective_rank == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    variances = np.sort(np.linalg.eigvalsh(np.cov(x.T)))[::-1]
    assert result.top_variance == pytest.approx({str(k): variances[:k].sum() / variances.sum() for k in (1, 3)})
    cosines = w @ w.T
    assert result.mean_cosine == pytest.approx((cosines.sum() - 24) / (24 * 23))


def test_the_bound_of_section_5(result):
    gram = matrix()[1] @ matrix()[1].T
    assert result.gram_sum == pytest.approx(gram.sum())
    assert result.largest_eigenvalue == pytest.approx(np.linalg.eigvalsh(gram)[-1])
    assert result.trace == pytest.approx(24)
    assert result.nonnegative == pytest.approx((gram >= 0).mean())


def test_similarities_by_band(result):
    _, w = matrix()
    assert list(result.similarities) == list(BANDS)
    assert [len(band) for band in result.similarities.values()] == [2, 2, 1, 2, 5]
    expected = {
        band: [float(w[i] @ w[i + 12]) for i, s in enumerate(SCORES) if BANDS[min(int(s), 4)] == band] for band in BANDS
    }
    for band in BANDS:
        assert result.similarities[band] == pytest.approx(expected[band])


def test_no_positives_and_one_pair():
    result = evaluate_geometry(encode, StsTask("x", "dev", {"dev": [ScoredPair("1", "2", 3.0)]}))
    assert math.isnan(result.alignment) and result.positives == 0
    assert math.isfinite(result.uniformity) and len(result.spectrum) == 2


def test_short_vectors_have_the_cosines_of_long_ones(result):
    short = evaluate_geometry(lambda sentences: encode(sentences).double() * 1e-12, TASK)
    for band in BANDS:
        assert short.similarities[band] == pytest.approx(result.similarities[band])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("value", [0.0, 0.1, 6e4])
def test_of_equal_sentences_only_isotropy_is_no_number(dtype, value):
    result = evaluate_geometry(lambda sentences: torch.full((len(sentences), 6), value, dtype=dtype), TASK)
    assert result.alignment == 0 and result.uniformity == pytest.approx(0, abs=1e-6)
    assert result.mean_cosine == pytest.approx(float(value > 0)) and result.trace == pytest.approx(24 * (value > 0))
    assert math.isnan(result.effective_rank) == (value == 0)
    assert math.isnan(result.isoscore) and all(map(math.isnan, result.top_variance.values()))
    assert all(c == pytest.approx(float(value > 0)) for band in result.similarities.values() for c in band)
