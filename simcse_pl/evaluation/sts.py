"""The STS protocol: correlation of cosine similarities with human scores (Appendix B of the paper)."""

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
    """Return Spearman's and Pearson's correlation of cosines and human scores.

    Args:
        encode: function from sentences to vectors [n, dim]. It is called once, with the distinct sentences.
        task: the scored pairs.
    """
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
        mean=_correlation(*np.average(scores, axis=0)),
        wmean=_correlation(*np.average(scores, axis=0, weights=sizes)),
        subsets=subsets,
    )


def cosines(encode: Encode, pairs: Sequence[ScoredPair]) -> np.ndarray:
    """Return the cosine similarity of each pair, [n] in float64."""
    first, second = encode_columns(encode, [pair.first for pair in pairs], [pair.second for pair in pairs])
    return cosine_similarity(first, second).numpy()


def correlation(predicted: np.ndarray, human: np.ndarray) -> Correlation:
    """Return both correlations of two arrays [n]; NaN for fewer than two pairs."""
    if len(human) < 2:
        return Correlation()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DegenerateDataWarning)
        try:
            return _correlation(spearmanr(predicted, human).statistic, pearsonr(predicted, human).statistic)
        except DegenerateDataWarning:
            return Correlation()


def _correlation(spearman: float, pearson: float) -> Correlation:
    return Correlation(spearman=float(spearman), pearson=float(pearson))
