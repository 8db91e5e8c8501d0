"""GISTEmbed (Solatorio 2024): another encoder finds the false negatives of a batch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat
from torch import Tensor

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.frozen_encoder import FrozenEncoder, TaughtLoss
from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.utils.tensors import similarity_matrix


class GISTLoss(ContrastiveLoss, TaughtLoss):
    """The contrastive loss without the negatives that a guide finds more similar than the positive (Solatorio 2024).

    In plain terms: rows of a batch may have the same topic, and their sentences are then false negatives of each other.
    For the cosines s_G of the guide, a negative k of an anchor a with the positive p is left out if

        s_G(a, k) > s_G(a, p) - margin

    Args:
        guide, pooling: the guide (see FrozenEncoder). It is not saved.
        margin: the larger it is, the more negatives are left out.
        relative_margin: whether the margin is a share of |s_G(a, p)|, as in NV-Retriever (Moreira et al. 2024).
        contrast: the arguments of ContrastiveLoss. With `same_role`, anchors are left out by the same rule.
    """

    def __init__(
        self,
        guide: str | Path,
        pooling: str | None = None,
        margin: NonNegativeFloat = 0.0,
        relative_margin: bool = False,
        **contrast: Any,
    ) -> None:
        super().__init__(**contrast)
        self.guide = FrozenEncoder(guide, pooling)
        self.margin, self.relative_margin = margin, relative_margin

    def false_negatives(
        self, batch: EmbeddedBatch, comparisons: Sequence[Sequence[int]]
    ) -> Sequence[Mapping[int, Tensor]]:
        """Return what the guide leaves out of the negatives of each comparison, and what `mask_duplicates` does."""
        guided = self.guide.embed(batch)
        gathered = batch.gather(guided)
        masks = []
        duplicates = super().false_negatives(batch, comparisons)
        for (first, *views), repeated in zip(comparisons, duplicates, strict=True):
            found = {view: similarity_matrix(guided[:, first], gathered[:, view]) for view in views}
            limit = found[views[0]].gather(1, batch.targets[:, None])  # rounded as those of the positive's copies
            limit = limit - self.margin * (limit.abs() if self.relative_margin else 1)
            left_out = {view: similarities > limit for view, similarities in found.items()}
            masks.append({view: mask | repeated[view] if repeated else mask for view, mask in left_out.items()})
        return masks
