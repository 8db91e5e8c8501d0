"""Alignment and uniformity (Wang and Isola 2020; equations 2 and 3 of the paper), as torchmetrics."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

_ROWS_AT_A_TIME = 2048


def alignment(x: Tensor, y: Tensor) -> Tensor:
    """How close positives are: E ||f(x) - f(y)||^2 over pairs of positives (equation 2). Smaller is better.

    Args:
        x, y: [n, dim], row i of one the positive of row i of the other; they are normalized here.

    Returns:
        A scalar in [0, 4]; not a number where n is 0.
    """
    return (F.normalize(x, dim=-1) - F.normalize(y, dim=-1)).square().sum(dim=-1).mean()


def uniformity(x: Tensor) -> Tensor:
    """How evenly embeddings cover the sphere: log E exp(-2 ||f(x) - f(y)||^2) (equation 3). Smaller is better.

    The mean is over all n (n - 1) / 2 pairs of different rows, taken in blocks, so that memory grows with n.

    Args:
        x: [n, dim]; normalized here.

    Returns:
        A scalar in [-8, 0]; not a number where n is below 2.
    """
    x = F.normalize(x, dim=-1)
    n = len(x)
    total = torch.zeros((), device=x.device)
    for start in range(0, n, _ROWS_AT_A_TIME):
        rows = x[start : start + _ROWS_AT_A_TIME]
        squared_distances = (2 - 2 * rows @ x[start:].T).clamp(min=0)
        total += torch.exp(-2 * squared_distances).triu(diagonal=1).sum()
    return (total / (n * (n - 1) / 2) if n > 1 else total * torch.nan).log().to(x.dtype)


class Alignment(Metric):
    """`alignment` over all pairs of positives seen, on every rank.

    Example:
        >>> metric = Alignment()
        >>> metric.update(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        >>> metric.compute()
        tensor(2.)
    """

    higher_is_better = False
    full_state_update = False
    total: Tensor
    pairs: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("pairs", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, x: Tensor, y: Tensor) -> None:
        """Add the pairs `x`, `y`, each [n, dim]; n may be 0."""
        if len(x):  # not in place: Lightning validates in inference mode, and trains outside it
            self.total = self.total + alignment(x, y) * len(x)
            self.pairs = self.pairs + len(x)

    def compute(self) -> Tensor:
        """The mean over all pairs; not a number before the first."""
        return self.total / self.pairs


class Uniformity(Metric):
    """`uniformity` of all embeddings seen, on every rank; it keeps them, 4 dim bytes each.

    Example:
        >>> metric = Uniformity()
        >>> metric.update(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> metric.compute()
        tensor(-8.)
    """

    higher_is_better = False
    full_state_update = False
    embeddings: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("embeddings", [], dist_reduce_fx="cat")

    def update(self, x: Tensor) -> None:
        """Add the embeddings `x` [n, dim]."""
        self.embeddings.append(x)

    def compute(self) -> Tensor:
        """The uniformity of everything added; not a number below two embeddings."""
        return uniformity(dim_zero_cat(self.embeddings))
