"""The STS protocol: how well the cosine of two sentences' embeddings agrees with people's scores (Appendix B)."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import DegenerateDataWarning, pearsonr, spearmanr

from simcse_pl.data.senteval.sts_sets import ScoredPair, StsTask
from simcse_pl.evaluation.encoding import encode_columns
from simcse_pl.models.protocols import Encode
from simcse_pl.utils.tensors import unit_vectors


@dataclass(frozen=True)
class Correlation:
    """Of predicted and human scores, in [-1, 1].

    Not numbers where one of the two is the same for all pairs, up to float64's rounding.
    """

    spearman: float
    pearson: float


@dataclass(frozen=True)
class Subset(Correlation):
    """A subset's own correlations, and how many pairs it has."""

    pairs: int


@dataclass(frozen=True)
class StsResult:
    """A task's scores.

    Args:
        task, split: what was measured.
        pairs: how many pairs it has.
        all: over the pairs of all subsets together, as the paper does.
        mean: of the subsets' own correlations.
        wmean: the same, weighted by the subsets' sizes.
        subsets: every subset's own.
        regressor: of a regressor's scores in place of the cosines (see regressor.py); None where it was not asked for.
    """

    task: str
    split: str
    pairs: int
    all: Correlation
    mean: Correlation
    wmean: Correlation
    subsets: dict[str, Subset]
    regressor: Correlation | None = None


def evaluate_sts(encode: Encode, task: StsTask) -> StsResult:
    """Spearman's and Pearson's correlation of cosine and human score, without a regressor.

    Args:
        encode: sentences to vectors [n, dim]; it is called once, with each distinct sentence once.
        task: what to measure on.
    """
    cosine = cosines(encode, task.pairs)
    human = np.array([pair.score for pair in task.pairs])
    subsets, start = {}, 0
    for name, pairs in task.subsets.items():
        end = start + len(pairs)
        subset = correlation(cosine[start:end], human[start:end])
        subsets[name] = Subset(subset.spearman, subset.pearson, len(pairs))
        start = end
    return StsResult(
        task=task.name,
        split=task.split,
        pairs=len(task.pairs),
        all=correlation(cosine, human),
        mean=_average(subsets, [1] * len(subsets)),
        wmean=_average(subsets, [subset.pairs for subset in subsets.values()]),
        subsets=subsets,
    )


def cosines(encode: Encode, pairs: Sequence[ScoredPair]) -> np.ndarray:
    """The cosine similarity of each pair [n], in float64."""
    first, second = encode_columns(encode, [pair.first for pair in pairs], [pair.second for pair in pairs])
    return (unit_vectors(first.double()) * unit_vectors(second.double())).sum(dim=-1).numpy()


def correlation(predicted: np.ndarray, human: np.ndarray) -> Correlation:
    """Both correlations of two arrays [n]; not numbers below two pairs."""
    if len(human) < 2:
        return Correlation(math.nan, math.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DegenerateDataWarning)
        try:
            spearman, pearson = spearmanr(predicted, human).statistic, pearsonr(predicted, human).statistic
        except DegenerateDataWarning:
            return Correlation(math.nan, math.nan)
    return Correlation(float(spearman), float(pearson))


def _average(subsets: Mapping[str, Subset], weights: Sequence[int]) -> Correlation:
    spearman = np.average([subset.spearman for subset in subsets.values()], weights=weights)
    pearson = np.average([subset.pearson for subset in subsets.values()], weights=weights)
    return Correlation(float(spearman), float(pearson))
