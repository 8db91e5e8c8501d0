"""The classification loss of Sentence-BERT."""

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn

from simcse_pl.losses.checks import check_pairs
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.loss import Loss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import RowKind
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import at_least_float32


def siamese_softmax_loss(first: Tensor, second: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Return the classification loss of Sentence-BERT (Reimers and Gurevych 2019, section 3).

    In plain terms: a linear classifier predicts the label of a pair from both embeddings and their
    difference. The loss is the cross-entropy of

        o = softmax(W_t (u, v, |u - v|))

    Args:
        first, second: u and v, [n, dim]; row i of one is paired with row i of the other.
        labels: [n] int64, the class of each pair.
        weights: W_t, [classes, 3 dim]. The equation has no bias.

    Returns:
        The mean over the pairs, a scalar, in float32 if the embeddings are in half precision.
    """
    with torch.autocast(first.device.type, enabled=False):  # it would multiply in half precision
        first, second = at_least_float32(first), at_least_float32(second)
        features = torch.cat([first, second, (first - second).abs()], dim=-1)
        return F.cross_entropy(features @ at_least_float32(weights).T, labels)


class SoftmaxLoss(Loss):
    """The classification loss of Sentence-BERT, for labelled pairs (Reimers and Gurevych 2019).

    In plain terms: a linear classifier predicts the label of a pair from both embeddings and their
    difference; see `siamese_softmax_loss`. `attach` initializes the classifier from torch's global
    random state. It is trained with the encoder and not saved with it.

    Args:
        labels: number of classes; 3 in NLI.
        weight: see Loss.
    """

    classifier: nn.Linear

    def __init__(self, labels: Annotated[int, Field(ge=2)] = 3, weight: NonNegativeFloat = 1.0) -> None:
        super().__init__(weight)
        self.labels = labels

    def attach(self, encoder: SentenceEncoder) -> None:
        """Initialize the classifier's weights, [labels, 3 dim]."""
        self.classifier = nn.Linear(3 * encoder.hidden_size, self.labels, bias=False)

    def check_rows(self, rows: RowKind) -> None:
        """Raise UserError unless rows are labelled pairs of these classes."""
        check_pairs(rows, "classes")
        lowest, highest = rows.label_range or (0, 0)
        if lowest < 0 or highest >= self.labels:
            raise UserError(
                f"labels={self.labels}: the rows have labels {lowest:g} to {highest:g}, and labels count from 0: "
                "set it to the number of classes, or choose another data.label_column"
            )

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's labelled pairs."""
        assert batch.labels is not None
        first, second = batch.embeddings.unbind(dim=1)
        return batch.split.weight * siamese_softmax_loss(first, second, batch.labels, self.classifier.weight)
