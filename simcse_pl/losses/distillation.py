"""Objectives that train an encoder to imitate a larger one, the teacher."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from simcse_pl.losses.checks import check_head_is_kept, check_no_labels, check_one_anchor
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.frozen_encoder import FrozenEncoder
from simcse_pl.losses.functional import SIMILARITIES, paired_similarity
from simcse_pl.losses.objectives import Objective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import at_least_float32, unit_vectors

LOSSES = ("mse", "cosine")


class _Distillation(Objective):
    contrasts = False

    def __init__(self, teacher: str | Path, pooling: str | None) -> None:
        super().__init__()
        self.teacher = FrozenEncoder(teacher, pooling)
        self.normalize = self.teacher.network.normalize

    def attach(self, encoder: SentenceEncoder) -> None:
        """Check that the teacher reads the encoder's token ids, and whether vectors are compared at length 1."""
        self.teacher.check_vocabulary(encoder, "objective.teacher")
        self.normalize = encoder.normalize or self.teacher.network.normalize

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the mean over this device's rows."""
        self.check_rows(batch.roles, batch.label_kind)
        return batch.split.weight * self._loss(batch, self._scaled(self.teacher.embed(batch.inputs)))

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

    truncatable = False  # the teacher's vectors are whole

    def __init__(self, teacher: str | Path, pooling: str | None = None, loss: str = "mse") -> None:
        if loss not in LOSSES:
            raise UserError(f"objective.loss={loss}: choose one of {', '.join(LOSSES)}")
        super().__init__(teacher, pooling)
        self.loss = loss
        self.projection: nn.Linear | None = None

    def attach(self, encoder: SentenceEncoder) -> None:
        """Check the teacher and the head, and add the linear layer if it is needed."""
        super().attach(encoder)
        check_head_is_kept(encoder, "objective=distillation")
        if self.teacher.network.dim != encoder.hidden_size:
            self.projection = nn.Linear(encoder.hidden_size, self.teacher.network.dim)

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError if rows have labels."""
        check_no_labels(labels, "distillation")

    def _loss(self, batch: EmbeddedBatch, taught: Tensor) -> Tensor:
        own = self._scaled(batch.embeddings if self.projection is None else self.projection(batch.embeddings))
        if self.loss == "cosine":
            return 1 - paired_similarity(own, taught).mean()
        return (own - taught).square().mean()


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

    def __init__(self, teacher: str | Path, pooling: str | None = None, similarity: str = "cosine") -> None:
        if similarity not in SIMILARITIES:
            raise UserError(f"objective.similarity={similarity}: choose one of {', '.join(SIMILARITIES)}")
        super().__init__(teacher, pooling)
        self.similarity = similarity

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless rows have one anchor, one positive and hard negatives."""
        check_one_anchor(roles)
        check_no_labels(labels, "margin_mse")
        if list(roles).count(Role.POSITIVE) != 1 or Role.NEGATIVE not in roles:
            given = [str(role) for role in roles]
            raise UserError(f"data.roles={given}: objective=margin_mse needs one positive and a negative in each row")

    def _loss(self, batch: EmbeddedBatch, taught: Tensor) -> Tensor:
        own, teachers = (self._margins(batch, vectors) for vectors in (self._scaled(batch.embeddings), taught))
        return (own - teachers).square().mean()

    def _margins(self, batch: EmbeddedBatch, vectors: Tensor) -> Tensor:
        """Return the margins [batch, negatives] of vectors [batch, views, dim]."""
        (anchor,), (positive,) = batch.views(Role.ANCHOR), batch.views(Role.POSITIVE)
        nearness, *others = (
            paired_similarity(vectors[:, anchor], vectors[:, view], self.similarity)
            for view in (positive, *batch.views(Role.NEGATIVE))
        )
        return torch.stack([nearness - other for other in others], dim=1)
