"""The objective of pairs with scores, and the smallest example of an objective."""

from collections.abc import Sequence

from torch import Tensor

from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.objectives import Objective
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.validation import check_positive


class CosineMSEObjective(Objective):
    """The mean squared error of cosines and scores, for scored pairs (Reimers and Gurevych 2019, regression).

    In plain terms: the cosine of a pair should be its score. This is CosineSimilarityLoss of
    sentence-transformers.

    Args:
        max_score: the score of equal sentences, above 0, such as 5 in STS-B. Scores are divided by it, and must then
            be -1 to 1.

    Raises:
        UserError: if `max_score` is not above 0.
    """

    contrasts = False

    def __init__(self, max_score: float = 1.0) -> None:
        super().__init__()
        check_positive("objective.max_score", max_score)
        self.max_score = max_score

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless rows are scored pairs."""
        if len(roles) != 2:
            raise UserError(
                f"objective=cosine_mse takes pairs, but rows have {len(roles)} sentences: name two in data.columns"
            )
        if labels != "scores":
            raise UserError("objective=cosine_mse needs a score for every pair: set data.score_column")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's pairs."""
        self.check_rows(batch.roles, batch.label_kind)
        assert batch.labels is not None
        if (invalid := batch.labels[batch.labels.abs() > self.max_score]).numel():
            raise UserError(
                f"objective.max_score={self.max_score:g}: a row has score {float(invalid[0]):g}: "
                "set objective.max_score to the largest score"
            )
        first, second = unit_vectors(batch.embeddings).unbind(dim=1)
        cosines = (first * second).sum(dim=-1)
        errors = cosines - batch.labels.to(cosines.dtype) / self.max_score
        return batch.split.weight * errors.square().mean()
