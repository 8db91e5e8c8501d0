"""The geometry of random embeddings; test_metrics.py checks each measure against numpy."""

import numpy as np
import pytest
import torch

from simcse_pl.data.senteval.sts_sets import ScoredPair, StsTask
from simcse_pl.evaluation import metrics
from simcse_pl.evaluation.geometry import BANDS, evaluate_geometry

SCORES = [0.0, 0.5, 1.0, 1.9, 2.5, 3.0, 3.7, 4.0, 4.2, 4.8, 5.0, 5.0]
TASK = StsTask("STS-B", "test", {"test": [ScoredPair(str(i), str(i + 1), s) for i, s in enumerate(SCORES)]})


def encode(sentences):
    rows = [torch.randn(6, generator=torch.Generator().manual_seed(int(s))) for s in sentences]
    return torch.stack(rows) * torch.tensor([3.0, 1, 1, 1, 1, 0.2]) + 0.5


def test_geometry():
    first, second = encode([str(i) for i in range(12)]), encode([str(i + 1) for i in range(12)])
    x = torch.cat([first, second])
    w = x.double().numpy() / np.linalg.norm(x.double().numpy(), axis=1, keepdims=True)
    result = evaluate_geometry(encode, TASK)
    assert (result.data, result.sentences, result.positives) == ("STS-B test", 24, 4)  # scores above 4, not 4 itself
    assert result.alignment == pytest.approx(metrics.alignment(first[8:], second[8:]).item())
    assert result.uniformity == pytest.approx(metrics.uniformity(x).item())
    assert result.mean_cosine == pytest.approx(((w @ w.T).sum() - 24) / (24 * 23))
    assert result.spectrum == metrics.singular_spectrum(x).tolist()
    assert result.effective_rank == metrics.effective_rank(metrics.singular_spectrum(x)).item()
    variances = metrics.principal_variances(x)
    assert result.isoscore == metrics.isoscore(variances).item()
    assert result.top_variance == pytest.approx({str(k): float(variances[:k].sum() / variances.sum()) for k in (1, 3)})
    assert metrics.gram_bound(x).items() <= vars(result).items()
    bands = ([0, 1], [2, 3], [4], [5, 6], [7, 8, 9, 10, 11])
    assert tuple(result.similarities) == BANDS
    for similarities, rows in zip(result.similarities.values(), bands, strict=True):
        assert similarities == pytest.approx([w[i] @ w[i + 12] for i in rows])
