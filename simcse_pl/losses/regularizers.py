"""Regularizers of the word embeddings: cosine regularization and spectrum control."""

from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.loss import Loss
from simcse_pl.models.backbone import word_embedding_layer
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import as_float64, at_least_float32, unit_vectors


def cosine_regularization(words: Tensor) -> Tensor:
    """Return the mean cosine of all pairs of word embeddings; a word paired with itself counts as 0.

    This is the term of MLE-CosReg (Gao et al. 2019, section 5) without its weight gamma:

        1 / |V|^2 sum_i sum_{j != i} cos(w_i, w_j) = (||sum_i w_i / ||w_i||||^2 - |V|) / |V|^2

    The right-hand side is computed, in time and memory linear in |V|. The cosines and the gradient of
    a row of zeros are 0. For `words` [|V|, dim], it returns a scalar in [-1 / |V|, 1), in float32 if
    they are in half precision.
    """
    with torch.autocast(words.device.type, enabled=False):
        unit = unit_vectors(words)
        return (unit.sum(dim=0).square().sum() - unit.any(dim=1).sum()) / len(words) ** 2


def decay_curve(decay: str, count: int, exponent: float, rate: float = 1.0) -> Tensor:
    """Return the singular values that spectrum control prescribes, [count] in float64, descending from 1.

    With exponent gamma and rate c_2, value k = 1..count is

        polynomial: k^-gamma        exponential: exp(-c_2 (k^gamma - 1))
    """
    k = torch.arange(1, count + 1, dtype=torch.float64)
    return k**-exponent if decay == "polynomial" else torch.exp(-rate * (k**exponent - 1))


def spectrum_control(words: Tensor, curve: Tensor) -> Tensor:
    """Return the squared distance of the word embeddings' singular values from a given decay.

        sum_k (sigma_k / sigma_1 - curve_k)^2

    Wang et al. (2020) train factors U Sigma V^T in place of W, and add to the loss

        lambda_1 ||U^T U - I||^2 + lambda_2 ||V^T V - I||^2 + lambda_3 sum_k (sigma_k - p_k)^2

    where p_k is c_1 exp(-c_2 k^gamma) or c_1 k^-gamma. This adaptation to a pretrained encoder applies
    the term to W itself. The sigma_k are then W's own singular values, U and V are orthogonal, and the
    first two terms are 0. c_1 is chosen such that p_1 = sigma_1, and the sum is divided by sigma_1^2,
    so the loss does not depend on the scale of W.

    The singular values are the square roots of the eigenvalues of W^T W, so that their gradient is
    also defined if they are repeated. Those that are 0 up to rounding have gradient 0.

    Args:
        words: [|V|, dim], one row per word, not all zero.
        curve: [min(|V|, dim)], descending from 1.

    Returns:
        A scalar of 0 or more, in float32 if `words` is in half precision.
    """
    with torch.autocast(words.device.type, enabled=False):
        words = at_least_float32(words)
        gram = words.T @ words if words.shape[0] >= words.shape[1] else words @ words.T
        eigenvalues: Tensor = torch.linalg.eigvalsh(as_float64(gram)).flip(0)
        rounding = torch.finfo(words.dtype).eps * eigenvalues[0].detach()
        values = eigenvalues.clamp(min=rounding).sqrt()
        return (values / values[0] - curve.to(values, non_blocking=True)).square().sum().to(words)


def word_embeddings(encoder: SentenceEncoder) -> Tensor:
    """Return the encoder's word embeddings without the padding token's, or raise UserError if it has no matrix."""
    embedding = word_embedding_layer(encoder.backbone)
    if embedding is None:
        model = type(encoder.backbone).__name__
        raise UserError(f"auxiliary: {model} has no matrix of word embeddings to regularize: remove this loss")
    rows, padding = embedding.weight, embedding.padding_idx
    return rows if padding is None else torch.cat([rows[:padding], rows[padding + 1 :]])


class CosineRegularization(Loss):
    """Reduce the mean cosine of word embeddings (Gao et al. 2019); see `cosine_regularization`.

    The weight is gamma, which is 1 in the paper.
    """

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of the encoder's word embeddings, without the weight."""
        return cosine_regularization(word_embeddings(encoder))


class SpectrumControl(Loss):
    """Control the decay of singular values (Wang et al. 2020); see `spectrum_control`.

    Args:
        weight: 0 or more; lambda_3 sigma_1^2 in the paper's notation.
        decay: `polynomial` or `exponential`.
        exponent: gamma, 0 or more. Smaller values prescribe a slower decay, so more isotropic words.
        rate: c_2, 0 or more, for exponential decay only.
    """

    def __init__(
        self,
        weight: NonNegativeFloat = 1.0,
        decay: Literal["polynomial", "exponential"] = "polynomial",
        exponent: NonNegativeFloat = 0.2,
        rate: NonNegativeFloat = 0.5,
    ) -> None:
        super().__init__(weight)
        self.decay, self.exponent, self.rate = decay, exponent, rate

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of the encoder's word embeddings, without the weight."""
        words = word_embeddings(encoder)
        return spectrum_control(words, decay_curve(self.decay, min(words.shape), self.exponent, self.rate))
