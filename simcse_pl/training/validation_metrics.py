"""Validation metrics over batches and ranks: alignment, uniformity, Spearman's correlation."""

import torch
from torch import Tensor
from torchmetrics import CatMetric, SpearmanCorrCoef
from torchmetrics.utilities import dim_zero_cat

from simcse_pl.evaluation.metrics import alignment, uniformity


class SpearmanCorrelation(SpearmanCorrCoef):
    """Spearman's correlation; nan if a similarity is nan, where torchmetrics ranks by position."""

    def compute(self) -> Tensor:
        """Return the correlation over all pairs of all ranks."""
        correlation = super().compute()
        return correlation if dim_zero_cat(self.preds).isfinite().all() else correlation.new_tensor(torch.nan)


class Alignment(CatMetric):
    """`alignment` of all positive pairs of all ranks; nan without any."""

    value: list[Tensor]  # type: ignore[assignment]

    def update(self, x: Tensor, y: Tensor) -> None:  # type: ignore[override]
        """Add positive pairs `x`, `y`, each [n, dim]; n may be 0."""
        self.value.append(torch.stack([x, y], dim=1))

    def compute(self) -> Tensor:
        """Return the mean over all pairs."""
        return alignment(*dim_zero_cat(self.value).unbind(dim=1))


class Uniformity(CatMetric):
    """`uniformity` of all embeddings of all ranks, which are kept in memory; nan for fewer than two."""

    value: list[Tensor]  # type: ignore[assignment]

    def update(self, x: Tensor) -> None:  # type: ignore[override]
        """Add the embeddings `x` [n, dim]."""
        self.value.append(x)

    def compute(self) -> Tensor:
        """Return the uniformity of all embeddings."""
        return uniformity(dim_zero_cat(self.value))
