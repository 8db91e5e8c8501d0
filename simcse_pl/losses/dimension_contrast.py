"""The contrast between the dimensions of embeddings (SimCSE++)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role
from simcse_pl.utils.tensors import at_least_float32
from simcse_pl.utils.validation import check_positive

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
        first, second = (_standardized(at_least_float32(one)) for one in (first, second))
        correlations = first.T @ second / len(first)
        return F.cross_entropy(correlations / temperature, torch.arange(len(correlations), device=first.device))


def _standardized(vectors: Tensor) -> Tensor:
    variance, mean = torch.var_mean(vectors, dim=0, correction=0)
    return (vectors - mean) / (variance + EPSILON).sqrt()


class DimensionContrast(AuxiliaryLoss):
    """Contrast the dimensions of anchors and positives over the batch of all devices; see `dimension_contrast`.

    With several positives per row, the loss is the mean over them.

    Args:
        weight: 0 or more.
        temperature: T, above 0.
    """

    name = "dimension_contrast"
    needs_positive = True

    def __init__(self, weight: float = 0.1, temperature: float = 5.0) -> None:
        super().__init__(weight)
        check_positive(f"{self.option}.temperature", temperature)
        self.temperature = temperature

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of the batch of all devices, without the weight."""
        (anchor,), positives = batch.views(Role.ANCHOR), batch.views(Role.POSITIVE)
        anchors = batch.gathered[:, anchor]
        losses = [dimension_contrast(anchors, batch.gathered[:, view], self.temperature) for view in positives]
        return torch.stack(losses).mean()
