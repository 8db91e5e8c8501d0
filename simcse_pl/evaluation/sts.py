"""The STS protocol: correlation of cosine similarities with human scores (Appendix B of the paper)."""

import contextlib
import warnings
from collections.abc import Sequence

import numpy as np
from scipy.stats import DegenerateDataWarning, pearsonr, spearmanr

from simcse_pl.data.senteval.sts_sets import ScoredPair, StsTask
from simcse_pl.evaluation.encoding import encode_columns
from simcse_pl.models.protocols import Encode
from simcse_pl.results.evaluation_results import Correlation, StsScores, Subset
from simcse_pl.utils.tensors import cosine_similarity


def evaluate_sts(encode: Encode, task: StsTask) -> StsScores:
    """Return the correlations of cosines and human scores; `encode` is called once, with the distinct sentences."""
    predicted = cosines(encode, task.pairs)
    human = np.array([pair.score for pair in task.pairs])
    subsets, start = {}, 0
    for name, pairs in task.subsets.items():
        rows = slice(start, start + len(pairs))
        subsets[name] = Subset(**dict(correlation(predicted[rows], human[rows])), pairs=len(pairs))
        start += len(pairs)
    scores = np.array([(subset.spearman, subset.pearson) for subset in subsets.values()])
    sizes = [len(pairs) for pairs in task.subsets.values()]
    return StsScores(
        task=task.name,
        split=task.split,
        pairs=len(task.pairs),
        all=correlation(predicted, human),
        mean=_average(scores),
        wmean=_average(scores, sizes),
        subsets=subsets,
    )


def _average(scores: np.ndarray, sizes: Sequence[int] | None = None) -> Correlation:
    spearman, pearson = np.average(scores, axis=0, weights=sizes)
    return Correlation(spearman=float(spearman), pearson=float(pearson))


def cosines(encode: Encode, pairs: Sequence[ScoredPair]) -> np.ndarray:
    """Return the cosine similarity of each pair, [n] in float64."""
    first, second = encode_columns(encode, [pair.first for pair in pairs], [pair.second for pair in pairs])
    return cosine_similarity(first, second).numpy()


def correlation(predicted: np.ndarray, human: np.ndarray) -> Correlation:
    """Return both correlations of two arrays [n]; NaN for fewer than two pairs."""
    with warnings.catch_warnings(), contextlib.suppress(DegenerateDataWarning):
        warnings.simplefilter("error", DegenerateDataWarning)
        if len(human) > 1:
            spearman, pearson = spearmanr(predicted, human).statistic, pearsonr(predicted, human).statistic
            return Correlation(spearman=float(spearman), pearson=float(pearson))
    return Correlation()
