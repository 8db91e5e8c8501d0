"""The objectives of pairs with scores; CosineMSEObjective is the smallest example of an objective."""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from simcse_pl.losses.checks import check_pairs
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.functional import paired_similarity, similarity_matrix
from simcse_pl.losses.objectives import Objective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.validation import check_non_negative, check_positive


class ScoredPairsObjective(Objective):
    """A loss of pairs with scores.

    Attributes:
        choice: its name in conf/objective, for error messages.
    """

    contrasts = False
    choice: ClassVar[str]

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless rows are scored pairs."""
        check_pairs(roles, labels, "scores", self.choice)

    def scores(self, batch: EmbeddedBatch) -> Tensor:
        """Return the scores of this device's pairs, [batch]; raise UserError if there are none."""
        self.check_rows(batch.roles, batch.label_kind)
        assert batch.labels is not None
        return batch.labels


class CosineMSEObjective(ScoredPairsObjective):
    """The mean squared error of cosines and scores, for scored pairs (Reimers and Gurevych 2019, regression).

    In plain terms: the cosine of a pair should be its score. This is CosineSimilarityLoss of
    sentence-transformers.

    Args:
        max_score: the score of equal sentences, above 0, such as 5 in STS-B. Scores are divided by it, and must then
            be -1 to 1.
    """

    choice = "cosine_mse"

    def __init__(self, max_score: float = 1.0) -> None:
        super().__init__()
        check_positive("objective.max_score", max_score)
        self.max_score = max_score

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's pairs."""
        scores = self.scores(batch)
        if (invalid := scores[scores.abs() > self.max_score]).numel():
            raise UserError(
                f"objective.max_score={self.max_score:g}: a row has score {float(invalid[0]):g}: "
                "set objective.max_score to the largest score"
            )
        cosines = paired_similarity(batch.embeddings[:, 0], batch.embeddings[:, 1])
        errors = cosines - scores.to(cosines.dtype) / self.max_score
        return batch.split.weight * errors.square().mean()


class CoSENTObjective(ScoredPairsObjective):
    """A loss on the order of the cosines of all pairs of the batch (CoSENT, Su 2022); see `cosent_loss`.

    In plain terms: of any two pairs, the one with the higher score should have the higher cosine. Only the
    order of the scores counts.

    Args:
        temperature: divisor of the differences of cosines, above 0; 1 / 20 in the released code.
    """

    choice = "cosent"

    def __init__(self, temperature: float = 0.05) -> None:
        super().__init__()
        check_positive("objective.temperature", temperature)
        self.temperature = temperature

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of the pairs of all devices."""
        cosines = paired_similarity(batch.gathered[:, 0], batch.gathered[:, 1])
        return cosent_loss(cosines, batch.gather(self.scores(batch)), self.temperature)


class AngleObjective(ScoredPairsObjective):
    """The loss of AnglE for scored pairs (Li and Li 2024), a weighted sum of three terms.

    In plain terms: of any two pairs, the one with the higher score should have the more similar
    embeddings. The similarity is that of `angle_similarity`, which does not saturate where the cosine
    does. The positive pairs also contrast with all other sentences of the batch.

    The terms are `cosent_loss` of `angle_similarity`, `in_batch_loss` of the pairs with a score of 1
    or more, and `cosent_loss` of cosines, which is CoSENT. The curves are train/objective/angle and so on.

    Args:
        temperature: divisor of all similarities, above 0; 1 / 20 in the released code.
        angle_weight, in_batch_weight, cosine_weight: 0 or more, not all 0. The weight 0 leaves out a term.
    """

    choice = "angle"
    truncatable = False  # the halves of a truncated vector are other numbers

    def __init__(
        self,
        temperature: float = 0.05,
        angle_weight: float = 1.0,
        in_batch_weight: float = 30.0,
        cosine_weight: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive("objective.temperature", temperature)
        self.temperature = temperature
        self.weights = {"angle": angle_weight, "in_batch": in_batch_weight, "cosine": cosine_weight}
        for name, weight in self.weights.items():
            check_non_negative(f"objective.{name}_weight", weight)
        if not any(self.weights.values()):
            raise UserError("objective=angle: all weights are 0: set one above 0")

    def attach(self, encoder: SentenceEncoder) -> None:
        """Raise UserError unless the embeddings have two halves, the real and the imaginary parts."""
        if encoder.hidden_size % 2:
            raise UserError(
                f"objective=angle: it needs an even number of dimensions, but the model has {encoder.hidden_size}"
            )

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of the pairs of all devices."""
        scores = batch.gather(self.scores(batch))
        first, second = batch.gathered.unbind(dim=1)
        terms = {
            "angle": lambda: cosent_loss(angle_similarity(first, second), scores, self.temperature),
            "in_batch": lambda: in_batch_loss(first, second, scores >= 1, self.temperature),
            "cosine": lambda: cosent_loss(paired_similarity(first, second), scores, self.temperature),
        }
        losses = {name: terms[name]() for name, weight in self.weights.items() if weight}
        self.curves = {f"objective/{name}": loss.detach() for name, loss in losses.items()}
        return torch.stack([self.weights[name] * loss for name, loss in losses.items()]).sum()


def cosent_loss(similarities: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """Return a penalty for pairs whose similarities are ordered against their scores (CoSENT, Su 2022).

        log( 1 + sum_(i, j: y_i < y_j) exp((s_i - s_j) / t) )

    Args:
        similarities: s, [n].
        scores: y, [n]. Only their order counts. If all are equal, the loss and its gradient are 0.
        temperature: t, above 0.
    """
    differences = (similarities[:, None] - similarities) / temperature
    terms = differences.masked_fill(scores[:, None] >= scores, -math.inf).flatten()
    return F.pad(terms, (1, 0)).logsumexp(dim=0)


def angle_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Return the similarity of pairs in complex space (AnglE, Li and Li 2024), [n].

    The halves of a vector are the real and the imaginary parts of complex numbers: z = a + b i of `first` and
    w = c + d i of `second`. The similarity adds the real and the imaginary parts of the products z conj(w) over all
    components, divides the sum by both norms, and takes its absolute value:

        |sum (a c + b d) + (b c - a d)| / (||z|| ||w||)

    The paper calls it an angle difference, and the sign in its loss is that of a distance. The sign here is that of
    the released code: the pair with the higher score gets the higher value.

    Args:
        first, second: [n, dim], with an even dim.
    """
    a, b = unit_vectors(first).chunk(2, dim=-1)
    c, d = unit_vectors(second).chunk(2, dim=-1)
    return (a * c + b * d + b * c - a * d).sum(dim=-1).abs()


def in_batch_loss(first: Tensor, second: Tensor, positive: Tensor, temperature: float) -> Tensor:
    """Return the contrastive loss of positive pairs among all sentences of a batch (AnglE, Li and Li 2024).

    Each sentence of a positive pair adds the cross-entropy of finding its partner among the other sentences of the
    batch, with the logits cosine / t. Sentences of other pairs are negatives only and add no term of their own. As in
    the released code, the sum is divided by the number of all sentences, 2 n.

    Args:
        first, second: [n, dim].
        positive: [n] bool.
        temperature: t, above 0.
    """
    sentences = torch.cat([first, second])
    logits = similarity_matrix(sentences, sentences) / temperature
    itself = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    partners = torch.arange(len(logits), device=logits.device).roll(len(first))
    losses = F.cross_entropy(logits.masked_fill(itself, -math.inf), partners, reduction="none")
    return (losses * positive.repeat(2)).mean()
