"""Alignment and uniformity (Wang and Isola 2020; equations 2 and 3 of the paper), isotropy, and correlations.

Functions that take embeddings take them of any norm. A measure that is undefined, for example for too few rows, is NaN.
"""

import contextlib
import math
import warnings

import numpy as np
import torch
from scipy.stats import DegenerateDataWarning, pearsonr, spearmanr
from torch import Tensor

from simcse_pl.utils.tensors import as_float64, unit_vectors

_CHUNK_ROWS = 2048


def alignment(x: Tensor, y: Tensor) -> Tensor:
    """Return the mean squared distance of normalized positives (equation 2): a scalar in [0, 4], smaller is better.

    Row i of `x` [n, dim] and row i of `y` [n, dim] are a positive pair.
    """
    return (unit_vectors(x) - unit_vectors(y)).square().sum(dim=-1).mean()


def uniformity(x: Tensor) -> Tensor:
    """Return log E exp(-2 ||f(x) - f(y)||^2) (equation 3): a scalar in [-8, 0], smaller is better.

    The mean is over all n (n - 1) / 2 pairs of different rows of `x` [n, dim], which are normalized here. The pairs
    are computed in chunks, so memory grows linearly with n.
    """
    x = unit_vectors(x)
    n, squares = len(x), x.square().sum(dim=-1)  # 1, or 0 for a zero vector
    total = x.new_zeros(())
    for start in range(0, n, _CHUNK_ROWS):
        rows = slice(start, start + _CHUNK_ROWS)
        squared_distances = squares[rows, None] + squares[start:] - 2 * x[rows] @ x[start:].T
        total += torch.exp(-2 * squared_distances.clamp(min=0)).triu(diagonal=1).sum()
    return (total / (n * (n - 1) / 2)).log()


def gram_bound(x: Tensor) -> dict[str, float]:
    """Return the bound of section 5 of the paper, for the matrix W of embeddings [n, dim], which are normalized here.

    If no entry of W W^T is negative, Sum(W W^T) is an upper bound of its largest eigenvalue (Merikoski 1984).
    Sum(W W^T) / n is always a lower bound (the Rayleigh quotient of equal weights).

    Returns:
        `gram_sum`: Sum(W W^T), the sum of all entries. `largest_eigenvalue`: largest eigenvalue of W W^T. `trace`: sum
        of all eigenvalues: n, less the number of zero vectors. `nonnegative`: fraction of entries that are 0 or more.
    """
    w = unit_vectors(as_float64(x))
    nonnegative = sum(int((rows @ w.T >= 0).sum()) for rows in w.split(_CHUNK_ROWS))
    return {
        "gram_sum": float(w.sum(dim=0).square().sum()),
        "largest_eigenvalue": float(torch.linalg.eigvalsh(w.T @ w)[-1]),
        "trace": float(w.square().sum()),
        "nonnegative": nonnegative / len(w) ** 2,
    }


def correlations(predicted: np.ndarray, human: np.ndarray) -> tuple[float, float]:
    """Return Spearman's and Pearson's correlation of two arrays [n]; NaN for fewer than two pairs or constants."""
    with warnings.catch_warnings(), contextlib.suppress(DegenerateDataWarning):
        warnings.simplefilter("error", DegenerateDataWarning)
        if len(human) > 1:
            return float(spearmanr(predicted, human).statistic), float(pearsonr(predicted, human).statistic)
    return math.nan, math.nan
