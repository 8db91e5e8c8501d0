"""Measures of scored pairs: the STS protocol, and the geometry of the embedding space."""

import numpy as np
import torch

from simcse_pl.data.evaluator import encode_columns
from simcse_pl.data.senteval.sts_sets import POSITIVE_SCORE_THRESHOLD, StsTask
from simcse_pl.evaluation import metrics
from simcse_pl.results.evaluation_results import Correlation, Geometry, StsScores
from simcse_pl.utils.tensors import Encode, cosine_similarity

BANDS = ("0-1", "1-2", "2-3", "3-4", "4-5")


def evaluate_sts(encode: Encode, task: StsTask) -> StsScores:
    """Correlate cosine similarities with human scores (Appendix B of the paper).

    `encode` is called once, with the distinct sentences.
    """
    columns = [pair.first for pair in task.pairs], [pair.second for pair in task.pairs]
    predicted = cosine_similarity(*encode_columns(encode, *columns)).numpy()
    human = np.array([pair.score for pair in task.pairs])
    sizes = [len(pairs) for pairs in task.subsets.values()]
    ends = np.cumsum(sizes)[:-1]
    parts = zip(task.subsets, np.split(predicted, ends), np.split(human, ends), strict=True)
    subsets = {name: _correlation(*scores) for name, *scores in parts}
    scores = np.array([(subset.spearman, subset.pearson) for subset in subsets.values()])
    averages = (np.average(scores, axis=0, weights=weights).tolist() for weights in (None, sizes))
    mean, wmean = (Correlation(spearman=spearman, pearson=pearson) for spearman, pearson in averages)
    return StsScores(
        task=task.name,
        split=task.split,
        pairs=len(task.pairs),
        all=_correlation(predicted, human),
        mean=mean,
        wmean=wmean,
        subsets=subsets,
    )


def _correlation(predicted: np.ndarray, human: np.ndarray) -> Correlation:
    spearman, pearson = metrics.correlations(predicted, human)
    return Correlation(spearman=spearman, pearson=pearson, pairs=len(human))


def evaluate_geometry(encode: Encode, task: StsTask) -> Geometry:
    """Measure alignment, uniformity, isotropy and the distribution of cosines (sections 2 and 5, Appendices F and G).

    The paper uses all splits of STS-B. `encode` is called once, with the distinct sentences.
    """
    pairs = task.pairs
    first, second = encode_columns(encode, [pair.first for pair in pairs], [pair.second for pair in pairs])
    positive = torch.tensor([pair.score > POSITIVE_SCORE_THRESHOLD for pair in pairs])
    x = torch.cat([first, second])
    spectrum = metrics.singular_spectrum(x)
    gram = metrics.gram_bound(x)
    similarities: dict[str, list[float]] = {band: [] for band in BANDS}
    for cosine, pair in zip(cosine_similarity(first, second).tolist(), pairs, strict=True):
        similarities[BANDS[min(int(pair.score), 4)]].append(cosine)  # a score of 5 belongs to the last band
    return Geometry(
        data=f"{task.name} {task.split}",
        sentences=len(x),
        positives=int(positive.sum()),
        alignment=float(metrics.alignment(first[positive], second[positive])),
        uniformity=float(metrics.uniformity(x)),
        mean_cosine=(gram["gram_sum"] - gram["trace"]) / (len(x) * (len(x) - 1)),
        spectrum=spectrum.tolist(),
        effective_rank=float(metrics.effective_rank(spectrum)),
        **gram,
        similarities=similarities,
    )
