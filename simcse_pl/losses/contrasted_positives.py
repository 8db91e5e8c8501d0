"""The contrastive loss that also compares positives with hard negatives."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from simcse_pl.losses.embedded_batch import EmbeddedBatch, select_views
from simcse_pl.losses.functional import similarity_matrix
from simcse_pl.losses.objectives import Objective, check_one_anchor
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.validation import check_positive


class ContrastedPositivesObjective(Objective):
    """The contrastive loss with hard negatives of anchors and of positives (CoT-BERT, Zhang et al. 2024, equation 3).

    In plain terms: each anchor should be more similar to its own positive than to the positives and hard negatives of
    all rows, and than its positive is to these hard negatives. For the anchor h_i, its positive h_i+ and the hard
    negatives h_j- of the rows j = 1..N, it is the mean of

        -log( exp(sim(h_i, h_i+) / t)
              / sum_j ( exp(sim(h_i, h_j+) / t) + exp(sim(h_i, h_j-) / t) + exp(sim(h_i+, h_j-) / t) ) )

    With several hard negatives per row, the last two terms are summed over them. A queue of embeddings h_m from other
    batches adds sum_m exp(sim(h_i, h_m) / t).

    Args:
        temperature: t, above 0.

    Raises:
        UserError: if the temperature is not above 0.
    """

    contrasts = True

    def __init__(self, temperature: float = 0.05) -> None:
        super().__init__()
        check_positive("objective.temperature", temperature)
        self.temperature = temperature

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless rows have one anchor, one positive and hard negatives, and no labels."""
        check_one_anchor(roles)
        positives, negatives = (list(roles).count(role) for role in (Role.POSITIVE, Role.NEGATIVE))
        if positives != 1 or not negatives:
            found = f"rows have {positives} and {negatives}"
            raise UserError(f"objective=contrasted_positives needs one positive and hard negatives, but {found}")
        if labels:
            column = {"classes": "label_column", "scores": "score_column"}[labels]
            raise UserError(f"objective=contrasted_positives takes no labels: set data.{column}=null")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's anchors against the rows of all devices."""
        self.check_rows(batch.roles, batch.label_kind)
        (anchor,), (positive,), negatives = map(batch.views, (Role.ANCHOR, Role.POSITIVE, Role.NEGATIVE))
        anchors, own_positives = batch.embeddings[:, anchor], batch.embeddings[:, positive]
        of_rows = select_views(batch.gathered, negatives).flatten(0, 1)
        further = [] if batch.queue is None else [batch.queue]
        of_anchors = similarity_matrix(anchors, torch.cat([batch.gathered[:, positive], of_rows, *further]))
        logits = torch.cat([of_anchors, similarity_matrix(own_positives, of_rows)], dim=1) / self.temperature
        own = batch.split.label_offset + torch.arange(len(anchors), device=logits.device)
        return batch.split.weight * F.cross_entropy(logits, own)
