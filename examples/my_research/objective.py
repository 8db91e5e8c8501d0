"""A loss on similarity scores: the cosine of a pair should equal its score."""

import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor

from simcse_pl.losses.loss import EmbeddedBatch, Loss
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Role, RowKind


class ScoreRegression(Loss):
    """The Huber loss between the cosine of anchor and positive and their score.

    Args:
        highest: the highest score in the data; scores are divided by it.
    """

    def __init__(self, highest: PositiveFloat = 5.0) -> None:
        super().__init__()
        self.highest = highest

    def check_rows(self, rows: RowKind) -> None:
        """Raise UserError unless rows have a positive and a score."""
        if Role.POSITIVE not in rows.roles or rows.labels != "scores":
            raise UserError("a row needs a positive and a score: set data.roles and data.score_column")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the mean over this device's pairs."""
        positive, *_ = batch.views(Role.POSITIVE)
        cosines = F.cosine_similarity(batch.embeddings[:, 0], batch.embeddings[:, positive])
        assert batch.labels is not None
        return F.huber_loss(cosines, batch.labels.to(cosines) / self.highest)
