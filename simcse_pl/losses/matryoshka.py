"""Matryoshka representation learning: embeddings whose first dimensions are embeddings, too (Kusupati et al. 2022)."""

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from simcse_pl.losses.loss import EmbeddedBatch, Loss, check_head_is_kept
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import RowKind
from simcse_pl.utils.errors import UserError


class MatryoshkaLoss(Loss):
    """A weighted sum of a loss on the first dimensions of the embeddings, for several numbers of dimensions.

    In plain terms: an embedding that is cut to its first 48 dimensions should still be a good one. The loss is that of
    equation 1 of Kusupati et al. (2022), with a loss of embeddings in place of a classifier.

    Args:
        objective: a loss of embeddings, without parameters.
        dims: the numbers of dimensions. None takes all dimensions, a half, a quarter and an eighth of them.
        weights: one weight per number of dimensions; None for 1 each.

    Raises:
        UserError: from `attach`, if some dimensions would not be trained or do not exist, the head is dropped at test
            time, or the objective is not defined for the first dimensions.
    """

    mean_of_rows = False  # the objective's calls are weighed

    def __init__(
        self,
        objective: Loss,
        dims: Annotated[Sequence[PositiveInt], Field(min_length=1)] | None = None,
        weights: Sequence[NonNegativeFloat] | None = None,
        weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(weight)
        self.objective, self.given = objective, (dims, weights)

    @property
    def contrasts(self) -> bool:  # type: ignore[override]
        """Whether the other rows of a batch are negatives."""
        return self.objective.contrasts

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare the objective, and choose the numbers of dimensions if they were not given."""
        self.objective.attach(encoder)
        check_head_is_kept(encoder)
        if not self.objective.truncatable:
            raise UserError(f"objective: {type(self.objective).__name__} needs whole embeddings")
        dims, weights = self.given
        dims = [encoder.pooled_dim // part for part in (1, 2, 4, 8)] if dims is None else dims
        weights = [1.0] * len(dims) if weights is None else weights
        if max(dims) > encoder.pooled_dim:
            raise UserError(f"dims={list(dims)}: the embeddings have {encoder.pooled_dim} dimensions")
        if max(dims) < encoder.dim:
            hint = f"add {encoder.dim}, or set model.truncate_dim={max(dims)}"
            raise UserError(f"dims={list(dims)}: the other dimensions would not be trained: {hint}")
        self.weights = dict(zip(dims, weights, strict=True))

    def check_rows(self, rows: RowKind) -> None:
        """Check the rows for the objective."""
        self.objective.check_rows(rows)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the weighted sum."""
        total: Any = 0
        for dim, weight in self.weights.items():
            first = {name: getattr(batch, name)[..., :dim] for name in ("embeddings", "gathered")}
            queue = None if batch.queue is None else batch.queue[:, :dim]
            loss = self.objective(batch.replaced(**first, queue=queue))
            batch.log(f"objective/{dim}", loss)
            total = total + weight * self.objective.weight * loss
        return torch.as_tensor(total)
