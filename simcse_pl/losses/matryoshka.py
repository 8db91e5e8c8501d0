"""Matryoshka representation learning: embeddings whose first dimensions are embeddings, too (Kusupati et al. 2022)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.objectives import Objective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.validation import check_non_negative


class MatryoshkaObjective(Objective):
    """A weighted sum of an objective on the first dimensions of the embeddings, for several numbers of dimensions.

    In plain terms: an embedding that is cut to its first 48 dimensions should still be a good one. The loss is that of
    equation 1 of Kusupati et al. (2022), with an objective of embeddings in place of a classifier.

    Args:
        objective: a loss of the embeddings alone.
        dims: the numbers of dimensions.
        weights: one weight per number of dimensions; None for 1 each.

    Raises:
        UserError: if `dims` is empty or has duplicates, or a value is out of range; from `attach`, if the encoder has
            fewer dimensions, or the objective has parameters or reads more than the embeddings.
    """

    def __init__(self, objective: Objective, dims: Sequence[int], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        weights = [1.0] * len(dims) if weights is None else weights
        if not dims or len(set(dims)) < len(dims) or min(dims) < 1:
            raise UserError(f"objective.dims={list(dims)}: give distinct positive integers")
        if len(weights) != len(dims):
            raise UserError(f"objective.weights={list(weights)}: give one weight for each of dims={list(dims)}")
        for weight in weights:
            check_non_negative("objective.weights", weight)
        self.objective = objective
        self.weights = dict(zip(dims, weights, strict=True))

    @property
    def contrasts(self) -> bool:  # type: ignore[override]
        """Whether the other rows of a batch are negatives."""
        return self.objective.contrasts

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare the objective."""
        self.objective.attach(encoder)
        name = type(self.objective).__name__
        if max(self.weights) > encoder.hidden_size:
            raise UserError(f"objective.dims: the model has {encoder.hidden_size} dimensions, not {max(self.weights)}")
        if not self.objective.truncatable or any(True for _ in self.objective.parameters()):
            raise UserError(f"objective.objective: {name} needs whole embeddings, so it does not work with matryoshka")

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Check the rows for the objective."""
        self.objective.check_rows(roles, labels)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the weighted sum."""
        losses = {dim: self.objective(batch.truncated(dim)) for dim in self.weights}
        self.curves = self.objective.curves | {f"objective/{dim}": loss.detach() for dim, loss in losses.items()}
        return torch.stack([weight * losses[dim] for dim, weight in self.weights.items()]).sum()
