"""The shape of an embedding space, measured on scored pairs: sections 2 and 5 of the paper, Appendices F and G."""

from dataclasses import dataclass

import torch
from torch import Tensor

from simcse_pl.data.senteval.sts_sets import POSITIVE_SCORE_THRESHOLD, ScoredPair, StsTask
from simcse_pl.evaluation.encoding import encode_columns
from simcse_pl.evaluation.metrics import (
    EigenvalueBound,
    alignment,
    effective_rank,
    gram_bound,
    isoscore,
    principal_variances,
    singular_spectrum,
    uniformity,
)
from simcse_pl.models.protocols import Encode
from simcse_pl.utils.tensors import unit_vectors

BANDS = ("0-1", "1-2", "2-3", "3-4", "4-5")
_TOP = (1, 3, 10, 100)


@dataclass(frozen=True)
class GeometryResult(EigenvalueBound):
    """What `evaluate_geometry` measures, section 5's bound on the largest eigenvalue (EigenvalueBound) among it.

    Args:
        data: the pairs it is measured on.
        sentences: how many embeddings there are: both sides of every pair, a sentence as often as it stands there.
        positives: how many pairs alignment is measured on.
        alignment, uniformity: equations 2 and 3; of embeddings of length 1, as all but the two last are.
        mean_cosine: of two different embeddings, over all pairs of them: the anisotropy of Ethayarajh 2019.
        spectrum: singular values over the largest, descending (Appendix F).
        effective_rank: of the spectrum.
        similarities: the cosine of every pair, by the band of its human score (Appendix G).
        top_variance: the share of variance in the first principal components, by how many.
        isoscore: of Rudman et al. 2022.
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
    """Alignment, uniformity, isotropy and the distribution of cosines on a task's pairs (the paper: all of STS-B).

    Args:
        encode: sentences to vectors [n, dim]; it is called once, with each distinct sentence once.
        task: human scores from 0 to 5.
    """
    pairs = task.pairs
    first, second = encode_columns(encode, [pair.first for pair in pairs], [pair.second for pair in pairs])
    scores = torch.tensor([pair.score for pair in pairs])
    alike = scores > POSITIVE_SCORE_THRESHOLD
    x = torch.cat([first, second])
    spectrum = singular_spectrum(x)
    variances = principal_variances(x)
    gram = gram_bound(x)
    cosines = (unit_vectors(first.double()) * unit_vectors(second.double())).sum(dim=-1)
    return GeometryResult(
        data=f"{task.name} {task.split}",
        sentences=len(x),
        positives=int(alike.sum()),
        alignment=float(alignment(first[alike], second[alike])),
        uniformity=float(uniformity(x)),
        mean_cosine=(gram.gram_sum - gram.trace) / (len(x) * (len(x) - 1)),
        spectrum=spectrum.tolist(),
        effective_rank=float(effective_rank(spectrum)),
        **vars(gram),
        similarities=_by_band(cosines, pairs),
        top_variance={str(k): float(variances[:k].sum() / variances.sum()) for k in _TOP if k <= len(variances)},
        isoscore=float(isoscore(variances)),
    )


def _by_band(cosines: Tensor, pairs: list[ScoredPair]) -> dict[str, list[float]]:
    """Bands hold their lower end; 5 belongs to the last."""
    bands: dict[str, list[float]] = {band: [] for band in BANDS}
    for cosine, pair in zip(cosines.tolist(), pairs, strict=True):
        bands[BANDS[min(int(pair.score), len(BANDS) - 1)]].append(cosine)
    return bands
