"""Validation metrics over batches and ranks: alignment, uniformity, Spearman's correlation."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, SpearmanCorrCoef
from torchmetrics.utilities import dim_zero_cat

from simcse_pl.evaluation.metrics import alignment, uniformity


class SpearmanCorrelation(SpearmanCorrCoef):
    """Spearman's correlation; nan if a similarity is nan, where torchmetrics ranks by position."""

    def compute(self) -> Tensor:
        """Return the correlation over all pairs of all ranks."""
        correlation = super().compute()
        return correlation if dim_zero_cat(self.preds).isfinite().all() else correlation.new_tensor(torch.nan)


class Alignment(Metric):
    """Mean of `alignment` over all positive pairs of all ranks.

    Examples:
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
        """Add positive pairs `x`, `y`, each [n, dim]; n may be 0."""
        if len(x):  # not in place, as Lightning validates in inference mode and trains outside it
            self.total = self.total + alignment(x, y) * len(x)
            self.pairs = self.pairs + len(x)

    def compute(self) -> Tensor:
        """Return the mean over all pairs; nan without any."""
        return self.total / self.pairs


class Uniformity(Metric):
    """`uniformity` of all embeddings of all ranks, which are stored: 4 dim bytes each.

    Examples:
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
        """Return the uniformity of all embeddings; nan for fewer than two."""
        return uniformity(dim_zero_cat(self.embeddings))
