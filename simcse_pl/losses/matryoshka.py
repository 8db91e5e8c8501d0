"""Matryoshka representation learning: embeddings whose first dimensions are embeddings, too (Kusupati et al. 2022)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcse_pl.losses.checks import check_head_is_kept
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
        objective: a loss of embeddings, without parameters.
        dims: the numbers of dimensions. None takes all dimensions, a half, a quarter and an eighth of them.
        weights: one weight per number of dimensions; None for 1 each.

    Raises:
        UserError: if `dims` or `weights` are out of range; from `attach`, if they do not fit the encoder, its head is
            dropped at test time, or the objective is not defined for the first dimensions.
    """

    weights: dict[int, float]

    def __init__(
        self, objective: Objective, dims: Sequence[int] | None = None, weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        if dims is not None and (not dims or len(set(dims)) < len(dims) or min(dims) < 1):
            raise UserError(f"objective.dims={list(dims)}: give different numbers, each 1 or more")
        for weight in weights or ():
            check_non_negative("objective.weights", weight)
        self.objective = objective
        self.given = dims, weights

    @property
    def contrasts(self) -> bool:  # type: ignore[override]
        """Whether the other rows of a batch are negatives."""
        return self.objective.contrasts

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare the objective, and choose the numbers of dimensions if they were not given."""
        self.objective.attach(encoder)
        check_head_is_kept(encoder, "objective=matryoshka")
        if not self.objective.truncatable or any(True for _ in self.objective.parameters()):
            name = type(self.objective).__name__
            raise UserError(f"objective.objective: {name} needs whole embeddings, so it does not work with matryoshka")
        dims, weights = self.given
        dims = [encoder.hidden_size // part for part in (1, 2, 4, 8)] if dims is None else dims
        weights = [1.0] * len(dims) if weights is None else weights
        if len(weights) != len(dims):
            raise UserError(f"objective.weights={list(weights)}: give one weight for each of dims={list(dims)}")
        if max(dims) > encoder.hidden_size:
            raise UserError(f"objective.dims: the model has {encoder.hidden_size} dimensions, not {max(dims)}")
        if max(dims) < encoder.dim:
            hint = f"add {encoder.dim}, or set model.truncate_dim={max(dims)}"
            raise UserError(f"objective.dims={list(dims)}: the other dimensions would not be trained: {hint}")
        self.weights = dict(zip(dims, weights, strict=True))

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Check the rows for the objective."""
        self.objective.check_rows(roles, labels)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the weighted sum."""
        losses = {dim: self.objective(batch.truncated(dim)) for dim in self.weights}
        self.curves = self.objective.curves | {f"objective/{dim}": loss.detach() for dim, loss in losses.items()}
        return torch.stack([weight * losses[dim] for dim, weight in self.weights.items()]).sum()
