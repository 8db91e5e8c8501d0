"""The STS protocol: correlation of cosine similarities with human scores (Appendix B of the paper)."""

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import DegenerateDataWarning, pearsonr, spearmanr

from simcse_pl.data.senteval.sts_sets import ScoredPair, StsTask
from simcse_pl.evaluation.encoding import encode_columns
from simcse_pl.models.protocols import Encode
from simcse_pl.utils.tensors import cosine_similarity


@dataclass(frozen=True)
class Correlation:
    """Correlations of predicted and human scores, in [-1, 1].

    Both are NaN if the predicted or the human scores are constant, up to the rounding of float64.
    """

    spearman: float
    pearson: float


@dataclass(frozen=True)
class SubsetCorrelation(Correlation):
    """Correlations of one subset of a task, and its number of pairs."""

    pairs: int


@dataclass(frozen=True)
class StsResult:
    """Scores of one STS task.

    Args:
        task, split: name and split of the task.
        pairs: number of pairs.
        all: over the pairs of all subsets together, as in the paper.
        mean: mean over the subsets.
        wmean: mean over the subsets, weighted by their number of pairs.
        subsets: each subset by name.
        regressor: correlations of a regressor's scores instead of cosines (see regressor.py); None if not measured.
    """

    task: str
    split: str
    pairs: int
    all: Correlation
    mean: Correlation
    wmean: Correlation
    subsets: dict[str, SubsetCorrelation]
    regressor: Correlation | None = None


def evaluate_sts(encode: Encode, task: StsTask) -> StsResult:
    """Return the correlations of cosines and human scores; `encode` is called once, with the distinct sentences."""
    predicted = cosines(encode, task.pairs)
    human = np.array([pair.score for pair in task.pairs])
    subsets, start = {}, 0
    for name, pairs in task.subsets.items():
        rows = slice(start, start + len(pairs))
        subsets[name] = SubsetCorrelation(**vars(correlation(predicted[rows], human[rows])), pairs=len(pairs))
        start += len(pairs)
    scores = [(subset.spearman, subset.pearson) for subset in subsets.values()]
    sizes = [subset.pairs for subset in subsets.values()]
    return StsResult(
        task=task.name,
        split=task.split,
        pairs=len(task.pairs),
        all=correlation(predicted, human),
        mean=Correlation(*map(float, np.average(scores, axis=0))),
        wmean=Correlation(*map(float, np.average(scores, axis=0, weights=sizes))),
        subsets=subsets,
    )


def cosines(encode: Encode, pairs: Sequence[ScoredPair]) -> np.ndarray:
    """Return the cosine similarity of each pair, [n] in float64."""
    first, second = encode_columns(encode, [pair.first for pair in pairs], [pair.second for pair in pairs])
    return cosine_similarity(first, second).numpy()


def correlation(predicted: np.ndarray, human: np.ndarray) -> Correlation:
    """Return both correlations of two arrays [n]; NaN for fewer than two pairs."""
    with warnings.catch_warnings(), contextlib.suppress(DegenerateDataWarning):
        warnings.simplefilter("error", DegenerateDataWarning)
        if len(human) > 1:
            return Correlation(*(float(measure(predicted, human).statistic) for measure in (spearmanr, pearsonr)))
    return Correlation(np.nan, np.nan)
