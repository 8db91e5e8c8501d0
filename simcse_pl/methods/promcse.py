"""PromCSE (Jiang, Zhang and Wang 2022): a margin between an anchor's positive and its most similar negative."""

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor

from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs, select_views
from simcse_pl.utils.tensors import similarity_matrix
from simcse_pl.utils.types import Role


class EnergyHinge(Loss):
    """The energy-based hinge loss (PromCSE, Jiang, Zhang and Wang 2022), as in its released code.

    In plain terms: the positive must be closer than the hardest negative of the batch by a margin. For the anchor h_i
    and its positive h_i+, and the other rows' positives and all hard negatives k, it is the mean of

        max(0, m + max_k cos(h_i, k) - cos(h_i, h_i+))

    Args:
        margin: m.
    """

    contrasts = True
    truncatable = True
    needs = Needs(positives=1)

    def __init__(self, margin: NonNegativeFloat = 0.2, weight: NonNegativeFloat = 10.0) -> None:
        super().__init__(weight)
        self.margin = margin

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        views = batch.views(Role.POSITIVE, Role.NEGATIVE)
        keys = select_views(batch.gathered, views)
        cosines = similarity_matrix(batch.embeddings[:, 0], keys.flatten(0, 1))
        positives = batch.targets[:, None] * keys.shape[1]
        others = cosines.scatter(1, positives, -torch.inf)
        if batch.gathered_copies is not None:
            others = others.masked_fill(select_views(batch.gathered_copies, views).flatten(), -torch.inf)
        hardest = others.amax(dim=1)
        return F.relu(self.margin + hardest - cosines.gather(1, positives).squeeze(1)).mean()
