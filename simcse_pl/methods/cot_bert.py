"""CoT-BERT (Zhang et al. 2024): positives are also compared with hard negatives."""

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import EmbeddedBatch, Needs, select_views
from simcse_pl.utils.tensors import similarity_matrix


class ContrastedPositives(ContrastiveLoss):
    """The contrastive loss with hard negatives of anchors and of positives (CoT-BERT, Zhang et al. 2024, equation 3).

    In plain terms: the similarity of an anchor and its positive should exceed the anchor's similarity to the other
    positives and to all hard negatives, and also the positive's similarity to the hard negatives. For the anchor h_i,
    its positive h_i+ and the hard negatives h_j- of the rows j = 1..N, the loss is the mean of

        -log( exp(sim(h_i, h_i+) / t)
              / sum_j ( exp(sim(h_i, h_j+) / t) + exp(sim(h_i, h_j-) / t) + exp(sim(h_i+, h_j-) / t) ) )

    With several hard negatives per row, the last two terms are summed over them. A queue of embeddings h_m from other
    batches adds sum_m exp(sim(h_i, h_m) / t).

    Args:
        temperature: t.
    """

    needs = Needs(positives=1, negatives=True)

    def __init__(self, temperature: PositiveFloat = 0.05, weight: NonNegativeFloat = 1.0) -> None:
        super().__init__(temperature, weight=weight)

    def similarities(self, batch: EmbeddedBatch, views: Sequence[int]) -> Tensor:
        hard_negatives = select_views(batch.gathered, views[2:]).flatten(0, 1)
        negatives = similarity_matrix(batch.embeddings[:, views[1]], hard_negatives)
        if batch.gathered_copies is not None:
            negatives = negatives.masked_fill(select_views(batch.gathered_copies, views[2:]).flatten(), -torch.inf)
        return torch.cat([super().similarities(batch, views), negatives], dim=1)
