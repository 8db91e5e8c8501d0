"""ArcCSE (Zhang et al. 2022): an angular margin for the positive pair, and an order of masked views."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from simcse_pl.data.view import Rate, SentenceView, ViewInput
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import EmbeddedBatch, Loss, select_views
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import paired_similarity
from simcse_pl.utils.types import Role, RowKind, Tokens


class AngularMarginLoss(ContrastiveLoss):
    """The contrastive loss with a margin added to the angle of each positive pair (ArcCSE, Zhang et al. 2022).

    In plain terms: a positive must be closer to the anchor, by the margin, to reach the same loss. The
    similarity of h_i and its positive h_i+, at the angle theta, becomes

        cos(theta + margin) = cos(theta) cos(margin) - sin(theta) sin(margin)

    in the numerator and in the sum of `contrastive_loss`. The gradient of sin(theta) is 0 where the two
    vectors are equal up to rounding.

    Args:
        margin: in degrees. 0 is the contrastive loss without a margin.
        contrast: the arguments of ContrastiveLoss; the similarity is `cosine`.
    """

    def __init__(self, margin: Annotated[float, Field(ge=0, le=180)] = 10.0, **contrast: Any) -> None:
        super().__init__(**contrast)
        if self.similarity != "cosine":
            raise UserError(f"similarity={self.similarity}: an angular margin needs cosine")
        self.margin = margin

    def similarities(self, batch: EmbeddedBatch, views: Sequence[int]) -> Tensor:
        cosines = paired_similarity(batch.embeddings[:, views[0]], batch.embeddings[:, views[1]])
        sines = (1 - cosines.square()).clamp(min=torch.finfo(cosines.dtype).eps).sqrt()
        margin = math.radians(self.margin)
        with_margin = cosines * math.cos(margin) - sines * math.sin(margin)
        return super().similarities(batch, views).scatter(1, batch.targets[:, None], with_margin[:, None])


class TripletMargin(Loss):
    """Keep an order of a row's `other` views by their similarity to the anchor (ArcCSE, Zhang et al. 2022).

    In plain terms: the more a view removes from the sentence, the less similar it should be. For the
    anchor h and the views v_1, v_2, ... in their order, the loss is the mean over rows and over k of

        max(0, cos(h, v_(k+1)) - cos(h, v_k) + margin)

    Args:
        margin: of cosines.
    """

    truncatable = True

    def __init__(self, weight: NonNegativeFloat = 0.1, margin: NonNegativeFloat = 0.0) -> None:
        super().__init__(weight)
        self.margin = margin

    def check_rows(self, rows: RowKind) -> None:
        if rows.roles[0] != Role.ANCHOR or rows.roles.count(Role.OTHER) < 2:
            raise UserError("it compares one anchor with two or more views with role=other: add them")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        others = select_views(batch.embeddings, batch.views(Role.OTHER))
        anchors = batch.embeddings[:, :1].expand_as(others)
        cosines = paired_similarity(anchors, others)
        return (cosines[:, 1:] - cosines[:, :-1] + self.margin).relu().mean()


class SpanMasking(SentenceView):
    """The sentence with one span of its tokens replaced by mask tokens (ArcCSE, Zhang et al. 2022).

    The span begins at a random token, with equal probability. Special tokens are not masked. Of several such views of
    a row, the one with the larger rate masks all tokens that the other one masks.

    Args:
        rate: the fraction of tokens to mask, rounded to the nearest integer.
    """

    shared_random = True

    def __init__(self, rate: Rate = 0.2, role: Role = Role.POSITIVE) -> None:
        super().__init__(role)
        self.rate = rate

    def make(self, source: ViewInput) -> Tokens:
        if source.mask is None:
            raise UserError("SpanMasking: the tokenizer has no mask token; choose another model or view")
        inner = len(source.tokens) - sum(source.special)
        length = round(self.rate * inner)
        start = source.special[0] + int(source.random.random() * (inner - length + 1))
        masked = source.tokens.copy()
        masked[start : start + length] = source.mask
        return masked
