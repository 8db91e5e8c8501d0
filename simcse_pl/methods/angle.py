"""AnglE (Li and Li 2024): pairs with higher scores should be more similar in complex space."""

import math

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs
from simcse_pl.methods.cosent import cosent_loss
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import paired_similarity, similarity_matrix, unit_vectors
from simcse_pl.utils.types import RowKind


def angle_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Return the similarity of pairs in complex space (AnglE, Li and Li 2024), [n].

    The halves of a vector are the real and the imaginary parts of complex numbers: z = a + b i of `first` and
    w = c + d i of `second`. The similarity adds the real and the imaginary parts of the products z conj(w) over all
    components, divides the sum by both norms, and takes its absolute value:

        |sum (a c + b d) + (b c - a d)| / (||z|| ||w||)

    The paper calls it an angle difference, and the sign in its loss is that of a distance. The sign here is that of
    the released code: the pair with the higher score gets the higher value.

    Args:
        first, second: [n, dim], with an even dim; otherwise UserError is raised.
    """
    if first.shape[-1] % 2:
        raise UserError(f"AnglE needs an even number of dimensions, not {first.shape[-1]}")
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


class AngleLoss(Loss):
    """The loss of AnglE for scored pairs (Li and Li 2024), a weighted sum of three terms.

    In plain terms: of any two pairs, the one with the higher score should have the more similar
    embeddings. The similarity is that of `angle_similarity`, which does not saturate where the cosine
    does. The positive pairs also contrast with all other sentences of the batch.

    The terms are `cosent_loss` of `angle_similarity`, `in_batch_loss` of the pairs with a score of 1
    or more, and `cosent_loss` of cosines, which is CoSENT. The curves are train/objective/angle and so on.

    Args:
        temperature: divisor of all similarities; 1 / 20 in the released code.
        angle_weight, in_batch_weight, cosine_weight: the weight 0 leaves out a term.
    """

    needs = Needs(labels="scores")

    def __init__(
        self,
        temperature: PositiveFloat = 0.05,
        angle_weight: NonNegativeFloat = 1.0,
        in_batch_weight: NonNegativeFloat = 30.0,
        cosine_weight: NonNegativeFloat = 0.0,
        weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(weight)
        self.temperature = temperature
        self.weights = {"angle": angle_weight, "in_batch": in_batch_weight, "cosine": cosine_weight}
        if not any(self.weights.values()):
            raise UserError("angle_weight, in_batch_weight and cosine_weight are 0: no loss is left")

    def check_rows(self, rows: RowKind) -> None:
        """Raise UserError unless rows are pairs with scores, of which those of 1 can be positives."""
        super().check_rows(rows)
        _, highest = rows.label_range or (0, 0)
        if self.weights["in_batch"] and highest > 1:
            raise UserError(f"scores up to {highest:g}: pairs of 1 or more are positives: set in_batch_weight=0")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        assert batch.labels is not None
        scores = batch.gather(batch.labels)
        first, second = batch.gathered.unbind(dim=1)
        losses = {}
        if self.weights["angle"]:
            losses["angle"] = cosent_loss(angle_similarity(first, second), scores, self.temperature)
        if self.weights["in_batch"]:
            losses["in_batch"] = in_batch_loss(first, second, scores >= 1, self.temperature)
        if self.weights["cosine"]:
            losses["cosine"] = cosent_loss(paired_similarity(first, second), scores, self.temperature)
        for name, loss in losses.items():
            batch.log(f"objective/{name}", loss)
        return torch.stack([self.weights[name] * loss for name, loss in losses.items()]).sum()
