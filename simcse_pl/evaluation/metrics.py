"""The shape of an embedding space: alignment and uniformity (Wang and Isola 2020; equations 2 and 3), isotropy."""

from dataclasses import dataclass

import torch
from torch import Tensor

from simcse_pl.utils.tensors import as_float64, unit_vectors

_ROWS_AT_A_TIME = 2048


def alignment(x: Tensor, y: Tensor) -> Tensor:
    """How close positives are: E ||f(x) - f(y)||^2 over pairs of positives (equation 2). Smaller is better.

    Args:
        x, y: [n, dim], row i of one the positive of row i of the other; they are normalized here.

    Returns:
        A scalar in [0, 4], at least in float32; not a number where n is 0.
    """
    return (unit_vectors(x) - unit_vectors(y)).square().sum(dim=-1).mean()


def uniformity(x: Tensor) -> Tensor:
    """How evenly embeddings cover the sphere: log E exp(-2 ||f(x) - f(y)||^2) (equation 3). Smaller is better.

    The mean is over all n (n - 1) / 2 pairs of different rows, taken in blocks, so that memory grows with n.

    Args:
        x: [n, dim]; normalized here.

    Returns:
        A scalar in [-8, 0], at least in float32; not a number where n is below 2.
    """
    x = unit_vectors(x)
    n, squares = len(x), x.square().sum(dim=-1)  # 1, but for rows of zeros
    total = x.new_zeros(())
    for start in range(0, n, _ROWS_AT_A_TIME):
        rows = slice(start, start + _ROWS_AT_A_TIME)
        squared_distances = squares[rows, None] + squares[start:] - 2 * x[rows] @ x[start:].T
        total += torch.exp(-2 * squared_distances.clamp(min=0)).triu(diagonal=1).sum()
    return (total / (n * (n - 1) / 2)).log()  # 0 / 0 below two rows


def singular_spectrum(x: Tensor) -> Tensor:
    """The singular values of the embedding matrix, its rows normalized, over the largest (Appendix F).

    Args:
        x: [n, dim]; normalized here.

    Returns:
        [min(n, dim)] in float64, descending from 1; not numbers where all rows are zeros.
    """
    values: Tensor = torch.linalg.svdvals(unit_vectors(as_float64(x)))
    return values / values[0]


def effective_rank(spectrum: Tensor) -> Tensor:
    """How many directions a spectrum spreads over: exp of the entropy of its shares (Roy and Vetterli 2007).

    Args:
        spectrum: singular values [k], of any scale.

    Returns:
        A scalar in [1, k]; not a number where they are all 0.
    """
    entropy: Tensor = torch.special.entr(spectrum / spectrum.sum()).sum()
    return entropy.exp()


def principal_variances(x: Tensor) -> Tensor:
    """The variance along each principal component, [dim] in float64, descending; not numbers where n is below 2."""
    if len(x) < 2:
        return as_float64(x).new_full((x.shape[1],), torch.nan)
    variances: Tensor = torch.linalg.eigvalsh(torch.cov(as_float64(x).T).view(x.shape[1], -1))
    return variances.flip(0).clamp(min=0)


def isoscore(variances: Tensor) -> Tensor:
    """How evenly variance is spread over all dimensions (Rudman et al. 2022): 0 is one direction, 1 all alike.

    Their five steps come down to (r - 1) / (dim - 1) with r = (sum v)^2 / sum v^2, the participation ratio.

    Args:
        variances: along the principal components [dim]; dim must be 2 or more.

    Returns:
        A scalar in [0, 1]; not a number where there is no variance.
    """
    return (variances.sum().square() / variances.square().sum() - 1) / (len(variances) - 1)


@dataclass(frozen=True)
class EigenvalueBound:
    """What section 5 of the paper argues with: W holds n embeddings of length 1, and W W^T their cosines.

    Where all cosines are 0 or more, Sum(W W^T) is an upper bound of the largest eigenvalue (Merikoski 1984); the trace,
    n, is the sum of all eigenvalues. Sum(W W^T) / n is always a lower bound, the Rayleigh quotient of equal weights.

    Args:
        gram_sum: the sum of all entries.
        largest_eigenvalue: of W W^T.
        trace: n, but for rows of zeros.
        nonnegative: the share of entries that are 0 or more.
    """

    gram_sum: float
    largest_eigenvalue: float
    trace: float
    nonnegative: float


def gram_bound(x: Tensor) -> EigenvalueBound:
    """Sum(W W^T), the largest eigenvalue and the trace of the embeddings x [n, dim], normalized here."""
    w = unit_vectors(as_float64(x))
    nonnegative = sum(int((rows @ w.T >= 0).sum()) for rows in w.split(_ROWS_AT_A_TIME))
    return EigenvalueBound(
        gram_sum=float(w.sum(dim=0).square().sum()),
        largest_eigenvalue=float(torch.linalg.eigvalsh(w.T @ w)[-1]),
        trace=float(w.square().sum()),
        nonnegative=nonnegative / len(w) ** 2,
    )
