"""The mean squared error of cosines and scores; this is the smallest example of a loss."""

from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs
from simcse_pl.models.roles import RowKind
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import paired_similarity


class CosineMSELoss(Loss):
    """The mean squared error of cosines and scores, for scored pairs (Reimers and Gurevych 2019, regression).

    In plain terms: the cosine of a pair should be its score. This is CosineSimilarityLoss of
    sentence-transformers.

    Args:
        max_score: the score of equal sentences, such as 5 in STS-B. Scores are divided by it, and must then be -1 to 1.
    """

    truncatable = True
    needs = Needs(labels="scores")

    def __init__(self, max_score: PositiveFloat = 1.0, weight: NonNegativeFloat = 1.0) -> None:
        super().__init__(weight)
        self.max_score = max_score

    def check_rows(self, rows: RowKind) -> None:
        """Raise UserError unless rows are scored pairs within the range of the scores."""
        super().check_rows(rows)
        lowest, highest = rows.label_range or (0, 0)
        if max(-lowest, highest) > self.max_score:
            raise UserError(
                f"max_score={self.max_score:g}: the rows have scores {lowest:g} to {highest:g}: set it to the largest"
            )

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's pairs."""
        assert batch.labels is not None
        cosines = paired_similarity(batch.embeddings[:, 0], batch.embeddings[:, 1])
        errors = cosines - batch.labels.to(cosines.dtype) / self.max_score
        return errors.square().mean()
