"""CoSENT (Su 2022): pairs with higher scores should have higher cosines."""

import math

import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs
from simcse_pl.utils.tensors import paired_similarity


def cosent_loss(similarities: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """Return a penalty for pairs whose similarities are ordered against their scores (CoSENT, Su 2022).

        log( 1 + sum_(i, j: y_i < y_j) exp((s_i - s_j) / t) )

    Args:
        similarities: s, [n].
        scores: y, [n]. Only their order counts. If all are equal, the loss and its gradient are 0.
        temperature: t, above 0.
    """
    differences = (similarities[:, None] - similarities) / temperature
    terms = differences.masked_fill(~(scores[:, None] < scores), -math.inf).flatten()
    return F.pad(terms, (1, 0)).logsumexp(dim=0)


class CoSENTLoss(Loss):
    """A loss on the order of the cosines of all pairs of the batch (CoSENT, Su 2022); see `cosent_loss`.

    In plain terms: of any two pairs, the one with the higher score should have the higher cosine. Only the
    order of the scores counts.

    Args:
        temperature: divisor of the differences of cosines; 1 / 20 in the released code.
    """

    truncatable = True
    needs = Needs(labels="scores")

    def __init__(self, temperature: PositiveFloat = 0.05, weight: NonNegativeFloat = 1.0) -> None:
        super().__init__(weight)
        self.temperature = temperature

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        assert batch.labels is not None
        scores = batch.gather(batch.labels)
        cosines = paired_similarity(batch.gathered[:, 0], batch.gathered[:, 1])
        return cosent_loss(cosines, scores, self.temperature)
