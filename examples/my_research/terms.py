"""Two auxiliary losses: one with a teacher encoder, and one on the embeddings of the batch."""

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor

from simcse_pl.losses.frozen_encoder import FrozenEncoder, TaughtLoss
from simcse_pl.losses.loss import EmbeddedBatch, Loss, select_views
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.types import Role, RowKind


class TeacherSimilarities(TaughtLoss):
    """The mean squared difference between the anchors' cosines with each other and those of a teacher encoder.

    Args:
        weight: the factor of this loss.
        teacher: a folder, a hub name, package:NAME or a file of vectors (see FrozenEncoder).
        pooling: of the teacher.
    """

    def __init__(self, weight: NonNegativeFloat, teacher: str, pooling: str | None = None) -> None:
        super().__init__(weight)
        self.teacher = FrozenEncoder(teacher, pooling, anchors_only=True)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the mean over this device's anchors with those of all devices."""
        student = unit_vectors(batch.embeddings[:, 0])  # the anchors
        taught = unit_vectors(self.teacher.embed(batch)[:, 0])
        students, teachers = batch.gather(student), batch.gather(taught)
        return F.mse_loss(student @ students.T, taught @ teachers.T)


class NegativeMargin(Loss):
    """A hinge loss: a row's negative should be less similar to the anchor than each positive, by a margin."""

    def __init__(self, weight: NonNegativeFloat, margin: float = 0.1) -> None:
        super().__init__(weight)
        self.margin = margin

    def check_rows(self, rows: RowKind) -> None:
        """Raise UserError unless rows have a positive and a negative."""
        if not {Role.POSITIVE, Role.NEGATIVE} <= set(rows.roles):
            raise UserError("a row needs a positive and a negative: name them in data.roles")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the mean over this device's rows."""
        negative, *_ = batch.views(Role.NEGATIVE)
        anchors, negatives = batch.embeddings[:, :1], batch.embeddings[:, negative, None]
        positives = select_views(batch.embeddings, batch.views(Role.POSITIVE))
        closer = F.cosine_similarity(anchors, negatives, dim=-1) - F.cosine_similarity(anchors, positives, dim=-1)
        return torch.relu(closer + self.margin).mean()
