"""Losses that train an encoder to imitate a larger one, the teacher."""

from abc import abstractmethod
from pathlib import Path
from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor, nn

from simcse_pl.losses.frozen_encoder import FrozenEncoder
from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs, check_head_is_kept
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role
from simcse_pl.utils.tensors import Similarity, at_least_float32, paired_similarity, unit_vectors


class _Distillation(Loss):
    def __init__(self, teacher: str | Path, pooling: str | None, weight: float) -> None:
        super().__init__(weight)
        self.teacher = FrozenEncoder(teacher, pooling)
        self.normalize = self.teacher.network.normalize

    def attach(self, encoder: SentenceEncoder) -> None:
        """Check that the teacher reads the encoder's token ids, and whether vectors are compared at length 1."""
        self.teacher.check_vocabulary(encoder, "teacher")
        self.normalize = encoder.normalize or self.teacher.network.normalize

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the mean over this device's rows."""
        return batch.split.weight * self._loss(batch, self._scaled(self.teacher.embed(batch)))

    def _scaled(self, vectors: Tensor) -> Tensor:
        # Without this, an encoder whose vectors are longer makes its tokens cancel out, which destroys the vectors.
        return unit_vectors(vectors) if self.normalize else at_least_float32(vectors)

    @abstractmethod
    def _loss(self, batch: EmbeddedBatch, taught: Tensor) -> Tensor:
        """Return the mean loss of this device's rows; `taught` has the teacher's vectors, [batch, views, dim]."""


class EmbeddingDistillation(_Distillation):
    """The distance between the encoder's vectors and those of a teacher (EmbedDistill, Kim et al. 2023).

    In plain terms: each sentence of a row should have the teacher's vector. If one of the two encoders normalizes,
    vectors of length 1 are compared. The encoder needs a head that is kept at test time, or none. If the two have
    different numbers of dimensions, the encoder's vectors pass through a linear layer first, which is trained and not
    saved with the encoder.

    Args:
        teacher: a folder, a hub name or package:NAME, with the vocabulary of the encoder.
        pooling: of the teacher; None takes what it was saved with.
        loss: `mse`, the squared error averaged over dimensions, or `cosine`, 1 minus the cosine. For vectors of length
            1, the squared error is the cosine loss times 2 / dim.
    """

    def __init__(
        self,
        teacher: str | Path,
        pooling: str | None = None,
        loss: Literal["mse", "cosine"] = "mse",
        weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(teacher, pooling, weight)
        self.loss = loss
        self.projection: nn.Linear | None = None

    def attach(self, encoder: SentenceEncoder) -> None:
        """Check the teacher and the head, and add the linear layer if it is needed."""
        super().attach(encoder)
        check_head_is_kept(encoder)
        if self.teacher.network.dim != encoder.pooled_dim:
            self.projection = nn.Linear(encoder.pooled_dim, self.teacher.network.dim)

    def _loss(self, batch: EmbeddedBatch, taught: Tensor) -> Tensor:
        vectors = self._scaled(batch.embeddings if self.projection is None else self.projection(batch.embeddings))
        if self.loss == "cosine":
            return 1 - paired_similarity(vectors, taught).mean()
        return (vectors - taught).square().mean()


class MarginMSE(_Distillation):
    """The squared difference between the margins of the encoder and of a teacher (Hofstätter et al. 2020).

    In plain terms: a hard negative should be farther from the anchor than the positive by as much as the teacher
    finds. For an anchor a, positive p and negative n it is the mean over rows and negatives of

        ( (s(a, p) - s(a, n)) - (s_T(a, p) - s_T(a, n)) )^2

    If one of the two encoders normalizes, s and s_T are those of vectors of length 1.

    Args:
        teacher: a folder, a hub name or package:NAME, with the vocabulary of the encoder.
        pooling: of the teacher; None takes what it was saved with.
        similarity: `cosine`, or `dot` as in the paper.
    """

    truncatable = True
    needs = Needs(positives=1, negatives=True)

    def __init__(
        self,
        teacher: str | Path,
        pooling: str | None = None,
        similarity: Similarity = "cosine",
        weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(teacher, pooling, weight)
        self.similarity = similarity

    def _loss(self, batch: EmbeddedBatch, taught: Tensor) -> Tensor:
        margins, of_teacher = (self._margins(batch, vectors) for vectors in (self._scaled(batch.embeddings), taught))
        return (margins - of_teacher).square().mean()

    def _margins(self, batch: EmbeddedBatch, vectors: Tensor) -> Tensor:
        """Return the margins [batch, negatives] of vectors [batch, views, dim]."""
        nearness, *others = (
            paired_similarity(vectors[:, 0], vectors[:, view], self.similarity)
            for view in batch.views(Role.POSITIVE, Role.NEGATIVE)
        )
        return torch.stack([nearness - other for other in others], dim=1)
