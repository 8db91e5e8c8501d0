"""An angular margin for the positive pair, and a margin between consecutively ordered views (ArcCSE)."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.losses.checks import check_one_anchor
from simcse_pl.losses.embedded_batch import EmbeddedBatch, select_views
from simcse_pl.losses.functional import paired_similarity
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.validation import check_non_negative


class AngularMarginObjective(ContrastiveObjective):
    """The contrastive loss with a margin added to the angle of each positive pair (ArcCSE, Zhang et al. 2022).

    In plain terms: a positive must be closer to the anchor, by the margin, to reach the same loss. The
    similarity of h_i and its positive h_i+, at the angle theta, becomes

        cos(theta + margin) = cos(theta) cos(margin) - sin(theta) sin(margin)

    in the numerator and in the sum of `contrastive_loss`. The gradient of sin(theta) is 0 where the two
    vectors are equal up to rounding.

    Args:
        margin: in degrees, 0 to 180. 0 is the contrastive loss without a margin.
        contrast: the arguments of ContrastiveObjective; the similarity is `cosine`.
    """

    def __init__(self, margin: float = 10.0, **contrast: Any) -> None:
        super().__init__(**contrast)
        if not 0 <= margin <= 180:
            raise UserError(f"objective.margin={margin}: it must be 0 to 180 degrees")
        if self.similarity != "cosine":
            raise UserError(f"objective.similarity={self.similarity}: an angular margin needs cosine")
        self.margin = margin

    def loss_of_views(
        self, batch: EmbeddedBatch, views: Sequence[int], mask: Tensor | None, **changed: Tensor
    ) -> Tensor:
        """Return the loss with the margin."""
        cosines = paired_similarity(batch.embeddings[:, views[0]], batch.embeddings[:, views[1]])
        positive_similarities = add_angle(cosines, math.radians(self.margin))
        return super().loss_of_views(batch, views, mask, positive_similarities=positive_similarities, **changed)


def add_angle(cosines: Tensor, angle: float) -> Tensor:
    """Return cos(theta + angle) for cosines of theta, 0 to pi; `angle` is in radians."""
    sines = (1 - cosines.square()).clamp(min=torch.finfo(cosines.dtype).eps).sqrt()
    return cosines * math.cos(angle) - sines * math.sin(angle)


class TripletMargin(AuxiliaryLoss):
    """Keep an order of a row's `other` views by their similarity to the anchor (ArcCSE, Zhang et al. 2022).

    In plain terms: the more a view removes from the sentence, the less similar it should be. For the
    anchor h and the views v_1, v_2, ... in their order, the loss is the mean over rows and over k of

        max(0, cos(h, v_(k+1)) - cos(h, v_k) + margin)

    Args:
        weight: 0 or more.
        margin: 0 or more.
    """

    name = "triplet_margin"

    def __init__(self, weight: float = 0.1, margin: float = 0.0) -> None:
        super().__init__(weight)
        check_non_negative(f"{self.option}.margin", margin)
        self.margin = margin

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless rows have one anchor, and two or more views with the role `other`."""
        check_one_anchor(roles)
        if list(roles).count(Role.OTHER) < 2:
            raise UserError("auxiliary.triplet_margin: it compares two or more views with role=other: add them")

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's rows, without the weight."""
        others = select_views(batch.embeddings, batch.views(Role.OTHER))
        anchors = select_views(batch.embeddings, batch.views(Role.ANCHOR)).expand_as(others)
        cosines = paired_similarity(anchors, others)
        return batch.split.weight * (cosines[:, 1:] - cosines[:, :-1] + self.margin).relu().mean()
