"""WhitenedCSE (Zhuo et al. 2023): the contrasted vectors are whitened within random groups of dimensions."""

from typing import Any

import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from simcse_pl.losses.contrastive import contrastive_loss
from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs, select_views
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.distributed import BatchSplit, from_first_rank
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import as_float64, at_least_float32
from simcse_pl.utils.types import Role


class _InverseSquareRoot(torch.autograd.Function):
    """C^-1/2 of symmetric matrices [groups, size, size]; 0 in directions without variance.

    The gradient of eigh is not finite if two eigenvalues are equal, but that of C^-1/2 is. In the basis of the
    eigenvectors, for the square roots r of the eigenvalues, d(C^-1/2)_ij = -dC_ij / (r_i r_j (r_i + r_j)).
    """

    @staticmethod
    def forward(ctx: Any, matrices: Tensor) -> Tensor:
        values, basis = torch.linalg.eigh(matrices)
        rounding = torch.finfo(torch.float32).eps * values[:, -1:]  # the vectors are in float32
        roots = values.clamp(min=0).sqrt().masked_fill(values <= rounding, torch.inf)
        ctx.save_for_backward(roots, basis)
        inverse: Tensor = (basis / roots.unsqueeze(1)) @ basis.mT
        return inverse

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        roots, basis = ctx.saved_tensors
        inner = basis.mT @ gradients[0] @ basis
        rows, columns = roots.unsqueeze(2), roots.unsqueeze(1)
        gradient: Tensor = -basis @ (inner / (rows * columns * (rows + columns))) @ basis.mT
        return gradient


def group_whitening(vectors: Tensor, order: Tensor, groups: int) -> Tensor:
    """Whiten vectors within groups of their dimensions.

    In plain terms: within each group, the dimensions of the result are uncorrelated and have variance 1. For the
    mean m and the covariance C of a group's dimensions over all vectors, the result is

        C^-1/2 (x - m),    C = 1/n sum_i (x_i - m) (x_i - m)^T

    which is ZCA whitening. Directions without variance become 0, with gradient 0. With n vectors, at most n - 1
    directions of a group remain.

    Args:
        vectors: [n, dim].
        order: [dim], a permutation of the dimensions. Groups are consecutive in it.
        groups: the number of groups, which divides dim.

    Returns:
        [n, dim], the dimensions in the order of `vectors`; in float32 if they are in half precision.
    """
    with torch.autocast(vectors.device.type, enabled=False):
        exact = as_float64(vectors)
        order = order.to(exact.device)
        centered = (exact - exact.mean(dim=0))[:, order].view(len(exact), groups, -1).transpose(0, 1)
        inverse_roots: Tensor = _InverseSquareRoot.apply(centered.mT @ centered / len(exact))
        whitened = (centered @ inverse_roots).transpose(0, 1).flatten(1)
        return whitened[:, order.argsort()].to(at_least_float32(vectors))


class WhitenedContrastiveLoss(Loss):
    """The contrastive loss of anchors with each positive, after the pooled vectors are whitened.

    In plain terms: the vectors of a batch are spread evenly over all directions before they are compared. For the
    pooled vectors z of the anchors and z' of each view of positives, the loss is the sum over these views of

        InfoNCE(g(w(z)), g(w(z')))

    w is `group_whitening` with new random groups of dimensions for each view and step; its mean and covariance are
    those of the view in the batch of all devices. g is the encoder's projection head, that of the first encoder if
    there are two. InfoNCE is `contrastive_loss`: the positives of other rows in the same view are the negatives.

    Args:
        temperature: divisor of the cosines.
        groups: the number of groups of dimensions, which divides the size of the vectors.
    """

    contrasts = True
    capturable = False  # `eigh` waits for a GPU
    runs_networks = True
    needs = Needs(negatives=False)

    def __init__(
        self, temperature: PositiveFloat = 0.05, groups: PositiveInt = 128, weight: NonNegativeFloat = 1.0
    ) -> None:
        super().__init__(weight)
        self.temperature, self.groups = temperature, groups

    def attach(self, encoder: SentenceEncoder) -> None:
        if encoder.pooled_dim % self.groups:
            raise UserError(f"groups={self.groups}: choose a divisor of {encoder.pooled_dim}, the width of vectors")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        if batch.queue is not None:
            raise UserError("the embeddings of a queue are not whitened: set queue=null")
        pooled = batch.gather(select_views(batch.pooled, batch.views(Role.ANCHOR, Role.POSITIVE))).unbind(dim=1)
        orders = from_first_rank(torch.rand(len(pooled), pooled[0].shape[1], device=pooled[0].device).argsort(dim=1))
        whitened = [group_whitening(*view, self.groups) for view in zip(pooled, orders, strict=True)]
        projected = batch.encoder.project(torch.stack(whitened, dim=1), BatchSplit((len(whitened[0]),)))
        anchors, *views = projected.unbind(dim=1)
        offset = batch.split.label_offset
        anchors = anchors[offset : offset + len(batch.pooled)]
        losses = [
            contrastive_loss(anchors, positives, temperature=self.temperature, label_offset=offset)
            for positives in views
        ]
        return torch.stack(losses).sum()
