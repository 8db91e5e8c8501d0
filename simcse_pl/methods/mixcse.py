"""MixCSE (Zhang et al. 2022): mixtures of two sentences are additional negatives."""

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.utils.tensors import similarity_matrix


class MixedNegatives(ContrastiveLoss):
    """The contrastive loss with mixtures of two sentences as further negatives (MixCSE, Zhang et al. 2022).

    In plain terms: a vector between the positive of an anchor and that of another row is a hard
    negative. Indices wrap around: after the last row comes the first. Let

        p_i = share h_i+ + (1 - share) h_(i+1)+        a_i = share h_i + (1 - share) h_(i+1)

    without gradients. As in the released code, the sum of `contrastive_loss` for h_i then also has

        sum_(j != i - 1) exp(sim(h_i, p_j) / t) + sum_(j != i + 1) exp(sim(a_i, h_j+) / t) + 2

    Two pairs are excluded: h_i with p_(i-1), which has the share 1 - share of h_i+, and a_i, which has the share
    1 - share of h_(i+1), with h_(i+1)+. Their similarities are set to 0, so each adds exp(0) = 1.

    Args:
        share: lambda, the share of the row itself in a mixture.
        contrast: the arguments of ContrastiveLoss.
    """

    def __init__(self, share: Annotated[float, Field(ge=0, le=1)] = 0.2, **contrast: Any) -> None:
        super().__init__(**contrast)
        self.share = share

    def similarities(self, batch: EmbeddedBatch, views: Sequence[int]) -> Tensor:
        anchors, positives = (batch.gathered[:, view] for view in views[:2])
        mixed_anchors, mixed_positives = (
            self.share * x + (1 - self.share) * x.roll(-1, dims=0) for x in (anchors.detach(), positives.detach())
        )
        anchors_with_mixtures = similarity_matrix(batch.embeddings[:, views[0]], mixed_positives, self.similarity)
        mixtures_with_positives = similarity_matrix(mixed_anchors[batch.targets], positives, self.similarity)
        before, after = ((batch.targets + step).remainder(len(anchors))[:, None] for step in (-1, 1))
        mixtures = anchors_with_mixtures.scatter(1, before, 0), mixtures_with_positives.scatter(1, after, 0)
        return torch.cat([super().similarities(batch, views), *mixtures], dim=1)
