"""Losses of pairs with a label: the smallest example of a loss, and the classifier of Sentence-BERT."""

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import at_least_float32, paired_similarity
from simcse_pl.utils.types import RowKind


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
        super().check_rows(rows)
        lowest, highest = rows.label_range or (0, 0)
        if max(-lowest, highest) > self.max_score:
            raise UserError(
                f"max_score={self.max_score:g}: the rows have scores {lowest:g} to {highest:g}: set it to the largest"
            )

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        assert batch.labels is not None
        cosines = paired_similarity(batch.embeddings[:, 0], batch.embeddings[:, 1])
        errors = cosines - batch.labels.to(cosines.dtype) / self.max_score
        return errors.square().mean()


class SoftmaxLoss(Loss):
    """The classification loss of Sentence-BERT, for labelled pairs (Reimers and Gurevych 2019).

    In plain terms: a linear classifier predicts the label of a pair from both embeddings and their
    difference. The loss is the cross-entropy of

        o = softmax(W_t (u, v, |u - v|))

    `attach` initializes W_t from torch's global random state.

    Args:
        classes: the number of classes; 3 in NLI.
    """

    needs = Needs(labels="classes")
    classifier: nn.Linear

    def __init__(self, classes: Annotated[int, Field(ge=2)] = 3, weight: NonNegativeFloat = 1.0) -> None:
        super().__init__(weight)
        self.classes = classes

    def attach(self, encoder: SentenceEncoder) -> None:
        self.classifier = nn.Linear(3 * encoder.embedding_dim, self.classes, bias=False)

    def check_rows(self, rows: RowKind) -> None:
        super().check_rows(rows)
        lowest, highest = rows.label_range or (0, 0)
        if lowest < 0 or highest >= self.classes or rows.classes not in (None, self.classes):
            raise UserError(
                f"classes={self.classes}: the rows have labels {lowest:g} to {highest:g}, and labels count from 0: "
                "set it to the number of classes, or choose another data.label_column"
            )

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        assert batch.labels is not None
        first, second = batch.embeddings.unbind(dim=1)
        features = torch.cat([first, second, (first - second).abs()], dim=-1)
        return F.cross_entropy(features @ at_least_float32(self.classifier.weight).T, batch.labels)
