"""Regularizers of the word embeddings, against anisotropy: cosine regularization and spectrum control."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.models.backbone import word_embedding_layer
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import as_float64, at_least_float32, unit_vectors
from simcse_pl.utils.validation import check_non_negative

DECAYS = ("polynomial", "exponential")


def cosine_regularization(words: Tensor) -> Tensor:
    """The mean cosine of every word with every other, MLE-CosReg's term (Gao et al. 2019, section 5) without gamma:

        1 / |V|^2 sum_i sum_{j != i} cos(w_i, w_j) = (||sum_i w_i / ||w_i||||^2 - |V|) / |V|^2

    computed as on the right, so that time and memory grow with |V|. A row of zeros has no direction: its cosines
    count as 0, and its gradient is 0.

    Args:
        words: [|V|, dim], a row a word.

    Returns:
        A scalar in [-1 / |V|, 1), at least in float32.
    """
    with torch.autocast(words.device.type, enabled=False):
        unit = unit_vectors(words)
        return (unit.sum(dim=0).square().sum() - unit.any(dim=1).sum()) / len(words) ** 2


def decay_curve(decay: str, count: int, exponent: float, rate: float = 1.0) -> Tensor:
    """The singular values that spectrum control prescribes, over the largest, k = 1..count:

        polynomial: k^-gamma        exponential: exp(-c_2 (k^gamma - 1))

    Args:
        decay: one of `DECAYS`.
        count: how many.
        exponent: gamma; 0 gives a flat curve.
        rate: c_2, of the exponential decay alone.

    Returns:
        [count] in float64, descending from 1.
    """
    k = torch.arange(1, count + 1, dtype=torch.float64)
    return k**-exponent if decay == "polynomial" else torch.exp(-rate * (k**exponent - 1))


def spectrum_control(words: Tensor, curve: Tensor) -> Tensor:
    """How far the singular values of the word embeddings are from a prescribed decay:

        sum_k (sigma_k / sigma_1 - curve_k)^2

    Wang et al. (2020) replace W by factors U Sigma V^T that are trained in its place, and add to the loss

        lambda_1 ||U^T U - I||^2 + lambda_2 ||V^T V - I||^2 + lambda_3 sum_k (sigma_k - p_k)^2

    where p_k is c_1 exp(-c_2 k^gamma) or c_1 k^-gamma. Our adaptation is a term on W itself, for an encoder that is
    trained already: sigma_k are W's own singular values, so that U and V are orthogonal by construction and the first
    two terms are 0; and c_1 is such that the curve begins at sigma_1, whatever the scale of W, and all is divided by
    sigma_1^2.

    The singular values are the roots of the eigenvalues of W^T W, [dim, dim]. Their gradient is u_k v_k^T, without
    the differences of singular values in a denominator that the gradients of U and V have, so that repeated ones do no
    harm; those that are 0 up to rounding have gradient 0.

    Args:
        words: [|V|, dim], a row a word, not all zero.
        curve: [min(|V|, dim)], descending from 1.

    Returns:
        A scalar of 0 or more, at least in float32.
    """
    with torch.autocast(words.device.type, enabled=False):
        words = at_least_float32(words)
        gram = words.T @ words if words.shape[0] >= words.shape[1] else words @ words.T
        eigenvalues: Tensor = torch.linalg.eigvalsh(as_float64(gram)).flip(0)
        rounding = torch.finfo(words.dtype).eps * eigenvalues[0].detach()
        values = eigenvalues.clamp(min=rounding).sqrt()
        return (values / values[0] - curve.to(values, non_blocking=True)).square().sum().to(words)


def word_embeddings(encoder: SentenceEncoder) -> Tensor:
    """The rows of the encoder's word embeddings, all but the padding's.

    Padding is no word: attention never reads its row, and the embedding layer keeps gradients from it.

    Returns:
        [|V| or |V| - 1, dim].

    Raises:
        UserError: an encoder that has no matrix of word embeddings.
    """
    embedding = word_embedding_layer(encoder.backbone)
    if embedding is None:
        model = type(encoder.backbone).__name__
        raise UserError(f"auxiliary: {model} has no matrix of word embeddings for a regularizer: leave it out")
    rows, padding = embedding.weight, embedding.padding_idx
    return rows if padding is None else torch.cat([rows[:padding], rows[padding + 1 :]])


class _WordEmbeddingRegularizer(AuxiliaryLoss):
    """A term on the word embeddings alone, whatever the batch is."""

    def attach(self, encoder: SentenceEncoder) -> None:
        """See that the encoder has word embeddings.

        Raises:
            UserError: it has none.
        """
        word_embeddings(encoder)

    def forward(self, encoder: SentenceEncoder, batch: Batch) -> Tensor:
        """The term without its weight, a scalar."""
        return self.term(word_embeddings(encoder))

    @abstractmethod
    def term(self, words: Tensor) -> Tensor:
        """The term of the rows `words` [|V|, dim]."""


class CosineRegularization(_WordEmbeddingRegularizer):
    """`cosine_regularization` of the encoder's word embeddings (Gao et al. 2019).

    Args:
        weight: gamma, 0 or more; theirs is 1.

    Raises:
        UserError: a weight below 0; from `attach`, an encoder without word embeddings.
    """

    name: ClassVar[str] = "cosine_regularization"

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__(weight)

    def term(self, words: Tensor) -> Tensor:
        """The mean cosine of the rows `words` [|V|, dim]."""
        return cosine_regularization(words)


class SpectrumControl(_WordEmbeddingRegularizer):
    """`spectrum_control` of the encoder's word embeddings, with a `decay_curve` (Wang et al. 2020).

    Args:
        weight: lambda_3 times sigma_1^2, 0 or more.
        decay: `polynomial` or `exponential`.
        exponent: gamma, 0 or more: the smaller it is, the slower the decay, and the more isotropic the words.
        rate: c_2 of the exponential decay, 0 or more; no effect on the polynomial one.

    Raises:
        UserError: a value out of range; from `attach`, an encoder without word embeddings.
    """

    name: ClassVar[str] = "spectrum_control"

    def __init__(
        self, weight: float = 1.0, decay: str = "polynomial", exponent: float = 0.2, rate: float = 0.5
    ) -> None:
        super().__init__(weight)
        if decay not in DECAYS:
            raise UserError(f"auxiliary.spectrum_control.decay={decay}: choose one of {', '.join(DECAYS)}")
        check_non_negative("auxiliary.spectrum_control.exponent", exponent)
        check_non_negative("auxiliary.spectrum_control.rate", rate)
        self.decay = decay
        self.exponent = exponent
        self.rate = rate

    def term(self, words: Tensor) -> Tensor:
        """How far the spectrum of the rows `words` [|V|, dim] is from the prescribed one."""
        return spectrum_control(words, decay_curve(self.decay, min(words.shape), self.exponent, self.rate))
