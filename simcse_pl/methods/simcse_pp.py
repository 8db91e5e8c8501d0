"""SimCSE++ (Xu et al. 2023): negatives without dropout, and a contrast between the dimensions of embeddings."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import at_least_float32, evaluation_mode, paired_similarity
from simcse_pl.utils.types import Batch, Role

EPSILON = 1e-5  # of torch's BatchNorm1d, as in the released code


def dimension_contrast(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Return the dimension-wise contrastive loss of SimCSE++ (Xu et al. 2023).

    In plain terms: over a batch, a dimension of one embedding should be correlated with the same
    dimension of the other, and not with the others. The loss is the mean over the dimensions c of

        -log( exp(C_cc / T) / sum_d exp(C_cd / T) )        C = BN(Z)^T BN(Z') / n

    where BN maps each dimension x to (x - mean) / sqrt(var + 1e-5), with the batch's mean and biased
    variance.

    Args:
        first, second: Z and Z', [n, dim], the two embeddings of each sentence.
        temperature: T, above 0.

    Returns:
        A scalar, in float32 if the embeddings are in half precision.
    """
    with torch.autocast(first.device.type, enabled=False):  # it would multiply in half precision
        first, second = (_standardized(at_least_float32(vectors)) for vectors in (first, second))
        correlations = first.T @ second / len(first)
        return F.cross_entropy(correlations / temperature, torch.arange(len(correlations), device=first.device))


def _standardized(vectors: Tensor) -> Tensor:
    variance, mean = torch.var_mean(vectors, dim=0, correction=0)
    return (vectors - mean) / (variance + EPSILON).sqrt()


class DimensionContrast(Loss):
    """Contrast the dimensions of anchors and positives over the batch of all devices; see `dimension_contrast`.

    With several positives per row, the loss is the mean over them.

    Args:
        temperature: T.
    """

    needs = Needs(labels="any")

    def __init__(self, weight: NonNegativeFloat = 0.1, temperature: PositiveFloat = 5.0) -> None:
        super().__init__(weight)
        self.temperature = temperature

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        anchors, positives = batch.gathered[:, 0], batch.views(Role.POSITIVE)
        losses = [dimension_contrast(anchors, batch.gathered[:, view], self.temperature) for view in positives]
        return torch.stack(losses).mean()


class NegativesWithoutDropout(ContrastiveLoss):
    """The contrastive loss with negatives that are embedded without dropout (SimCSE++, Xu et al. 2023).

    In plain terms: dropout makes the two embeddings of a sentence differ, and should not also
    disturb the comparison with other sentences. With g_i for the anchor embedded once more without
    dropout, the loss is the mean of

        -log( exp(sim(h_i, h_i+) / t) / ( exp(sim(h_i, h_i+) / t) + sum_(j != i) exp(sim(g_i, g_j) / t) ) )

    The gradient includes that of g. The options of ContrastiveLoss apply: a mask leaves out pairs i, j.
    """

    runs_networks = True
    truncatable = False
    needs = Needs(positives=1, negatives=False)

    def attach(self, encoder: SentenceEncoder) -> None:
        """Refuse a sum over anchors, which the negatives are already."""
        super().attach(encoder)
        if self.same_role:
            raise UserError("same_role: the negatives of this loss are anchors: set it to false")

    def similarities(self, batch: EmbeddedBatch, views: Sequence[int]) -> Tensor:
        """Return the similarities, where the negatives are embeddings of `views[0]` without dropout."""
        positives = paired_similarity(batch.embeddings[:, views[0]], batch.embeddings[:, views[1]], self.similarity)
        inputs = {name: tensor[:, views[0], None] for name, tensor in batch.inputs.items()}
        pooled = apply_in_chunks(partial(_pool_without_dropout, batch.encoder), inputs, batch.chunk_size)
        plain = batch.encoder.project(pooled, batch.split).expand_as(batch.embeddings)
        similarities = super().similarities(batch.replaced(embeddings=plain), views)
        return similarities.scatter(1, batch.targets[:, None], positives[:, None])


def _pool_without_dropout(encoder: SentenceEncoder, inputs: Batch) -> Tensor:
    with evaluation_mode(encoder.backbone):  # also when the backward pass of apply_in_chunks recomputes
        return encoder.pool_views(inputs)
