"""Geometry of an embedding space, measured on scored pairs (sections 2 and 5 of the paper, Appendices F and G)."""

from dataclasses import dataclass

import torch

from simcse_pl.data.senteval.sts_sets import POSITIVE_SCORE_THRESHOLD, StsTask
from simcse_pl.evaluation import metrics
from simcse_pl.evaluation.encoding import encode_columns
from simcse_pl.models.protocols import Encode
from simcse_pl.utils.tensors import cosine_similarity

BANDS = ("0-1", "1-2", "2-3", "3-4", "4-5")
_TOP = (1, 3, 10, 100)


@dataclass(frozen=True)
class GeometryResult(metrics.EigenvalueBound):
    """Result of `evaluate_geometry`.

    Args:
        data: name of the pairs.
        sentences: number of embeddings: two per pair, repeated sentences included.
        positives: number of pairs that alignment is measured on.
        alignment, uniformity: equations 2 and 3.
        mean_cosine: mean over all pairs of different rows: the anisotropy of Ethayarajh (2019).
        spectrum: singular values divided by the largest, descending (Appendix F).
        effective_rank: effective rank of the spectrum.
        similarities: cosine of every pair, by band of its human score (Appendix G).
        top_variance: fraction of variance in the first k principal components, by k.
        isoscore: IsoScore of Rudman et al. (2022).
    """

    data: str
    sentences: int
    positives: int
    alignment: float
    uniformity: float
    mean_cosine: float
    spectrum: list[float]
    effective_rank: float
    similarities: dict[str, list[float]]
    top_variance: dict[str, float]
    isoscore: float


def evaluate_geometry(encode: Encode, task: StsTask) -> GeometryResult:
    """Measure alignment, uniformity, isotropy and the distribution of cosines on the pairs of a task.

    The paper uses all splits of STS-B. `encode` is called once, with the distinct sentences.
    """
    pairs = task.pairs
    first, second = encode_columns(encode, [pair.first for pair in pairs], [pair.second for pair in pairs])
    positive = torch.tensor([pair.score > POSITIVE_SCORE_THRESHOLD for pair in pairs])
    x = torch.cat([first, second])
    spectrum = metrics.singular_spectrum(x)
    variances = metrics.principal_variances(x)
    gram = metrics.gram_bound(x)
    similarities: dict[str, list[float]] = {band: [] for band in BANDS}
    for cosine, pair in zip(cosine_similarity(first, second).tolist(), pairs, strict=True):
        similarities[BANDS[min(int(pair.score), 4)]].append(cosine)  # a score of 5 belongs to the last band
    return GeometryResult(
        data=f"{task.name} {task.split}",
        sentences=len(x),
        positives=int(positive.sum()),
        alignment=float(metrics.alignment(first[positive], second[positive])),
        uniformity=float(metrics.uniformity(x)),
        mean_cosine=(gram.gram_sum - gram.trace) / (len(x) * (len(x) - 1)),
        spectrum=spectrum.tolist(),
        effective_rank=float(metrics.effective_rank(spectrum)),
        **vars(gram),
        similarities=similarities,
        top_variance={str(k): float(variances[:k].sum() / variances.sum()) for k in _TOP if k <= len(variances)},
        isoscore=float(metrics.isoscore(variances)),
    )
