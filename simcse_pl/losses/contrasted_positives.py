"""The contrastive loss that also compares positives with hard negatives."""

from collections.abc import Sequence

from torch import Tensor

from simcse_pl.losses.checks import check_one_anchor
from simcse_pl.losses.embedded_batch import EmbeddedBatch, select_views
from simcse_pl.losses.functional import similarity_matrix
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError


class ContrastedPositivesObjective(ContrastiveObjective):
    """The contrastive loss with hard negatives of anchors and of positives (CoT-BERT, Zhang et al. 2024, equation 3).

    In plain terms: the similarity of an anchor and its positive should exceed the anchor's similarity to the other
    positives and to all hard negatives, and also the positive's similarity to the hard negatives. For the anchor h_i,
    its positive h_i+ and the hard negatives h_j- of the rows j = 1..N, the loss is the mean of

        -log( exp(sim(h_i, h_i+) / t)
              / sum_j ( exp(sim(h_i, h_j+) / t) + exp(sim(h_i, h_j-) / t) + exp(sim(h_i+, h_j-) / t) ) )

    With several hard negatives per row, the last two terms are summed over them. A queue of embeddings h_m from other
    batches adds sum_m exp(sim(h_i, h_m) / t).

    Args:
        temperature: t, above 0.
    """

    def __init__(self, temperature: float = 0.05) -> None:
        super().__init__(temperature)
        self.mask_duplicates = None  # not an option of this objective

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

    def loss_of_views(
        self, batch: EmbeddedBatch, views: Sequence[int], mask: Tensor | None, **changed: Tensor
    ) -> Tensor:
        """Return the loss, with the similarities of the positives and all hard negatives."""
        hard_negatives = select_views(batch.gathered, views[2:]).flatten(0, 1)
        further = similarity_matrix(batch.embeddings[:, views[1]], hard_negatives)
        return super().loss_of_views(batch, views, mask, further_similarities=further, **changed)
