"""A loss on similarity scores: the cosine of a pair should equal its score."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.objectives import Objective
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError


class ScoreRegression(Objective):
    """The Huber loss between the cosine of anchor and positive and their score.

    Args:
        highest: the highest score in the data; scores are divided by it.
    """

    contrasts = False

    def __init__(self, highest: float = 5.0) -> None:
        super().__init__()
        self.highest = highest

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless rows have a positive and a score."""
        if Role.POSITIVE not in roles:
            raise UserError("ScoreRegression needs a positive: name one in data.roles")
        if labels != "scores":
            raise UserError("ScoreRegression needs a score for every pair: set data.score_column")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the mean over this device's pairs, weighted by their share of the whole batch."""
        (anchor,), (positive, *_) = batch.views(Role.ANCHOR), batch.views(Role.POSITIVE)
        cosines = F.cosine_similarity(batch.embeddings[:, anchor], batch.embeddings[:, positive])
        assert batch.labels is not None
        return batch.split.weight * F.huber_loss(cosines, batch.labels.to(cosines) / self.highest)
