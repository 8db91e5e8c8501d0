"""Contrastive Tension (Carlsson et al. 2021): two encoders learn which of their vectors are of the same sentence."""

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs
from simcse_pl.utils.tensors import similarity_matrix
from simcse_pl.utils.types import Role


class ContrastiveTension(Loss):
    """The loss of Contrastive Tension (Carlsson et al. 2021): a binary decision for each pair of sentences.

    In plain terms: the dot product of the vectors that two encoders give one sentence should be large, and that of
    different sentences small. For the anchors f_i, the positives g_i of the other encoder (`encoders=two`), and the
    sigmoid s, the loss of each row is the mean of K + 1 terms:

        -log s(f_i . g_i),    -log s(-f_i . g_j) for the K rows j after row i

    Indices wrap around: after the last row of all devices comes the first. Both encoders have the same share in the
    loss, so it does not matter which of them is kept.

    Args:
        negatives: K; fewer in a batch of K rows or less.
    """

    truncatable = True
    needs = Needs(positives=1, negatives=False)

    def __init__(self, negatives: PositiveInt = 7, weight: NonNegativeFloat = 1.0) -> None:
        super().__init__(weight)
        self.negatives = negatives

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        anchors, others = batch.embeddings[:, 0], batch.gathered[:, batch.views(Role.POSITIVE)[0]]
        steps = torch.arange(min(self.negatives + 1, len(others)), device=anchors.device)
        pairs = (batch.targets[:, None] + steps).remainder(len(others))
        similarities = similarity_matrix(anchors, others, "dot").gather(1, pairs)
        labels = (steps == 0).to(similarities).expand_as(similarities)
        return F.binary_cross_entropy_with_logits(similarities, labels)


def stepwise_schedule(
    optimizer: Optimizer, every: PositiveInt = 500, drop: NonNegativeFloat = 0.2, lowest: NonNegativeFloat = 0.2
) -> LambdaLR:
    """Return a schedule that lowers the learning rate by the same amount after every few steps (Carlsson et al. 2021).

    Args:
        optimizer: has the first learning rate.
        every: the number of steps between two changes.
        drop, lowest: the amount, and the lowest learning rate, as shares of the first one.
    """
    return LambdaLR(optimizer, lambda step: max(lowest, 1 - drop * (step // every)))
