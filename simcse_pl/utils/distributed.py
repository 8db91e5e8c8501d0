"""Communication between the ranks of a distributed run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_alone = False


def world_size() -> int:
    """Return the number of ranks; 1 outside a distributed run, and within `alone`."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() and not _alone else 1


@contextmanager
def alone() -> Iterator[None]:
    """Within the block, this rank computes as the only one, and waits for no other."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def rank() -> int:
    """Return the rank of this process, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


@contextmanager
def ranks_of_torchrun() -> Iterator[None]:
    """Connect the ranks that torchrun started, if it started this process, and give each its GPU."""
    if not dist.is_torchelastic_launched():
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo", timeout=timedelta(days=30))  # ranks may wait for hours at a barrier
    try:
        yield
    finally:
        dist.destroy_process_group()


def barrier() -> None:
    """Wait until all ranks are here."""
    if world_size() > 1:
        dist.barrier()


def gather_objects(value: Any) -> list[Any]:
    """Return the values that the ranks give, of any type, in rank order."""
    values = [value] * world_size()
    if len(values) > 1:
        dist.all_gather_object(values, value)
    return values


@dataclass(frozen=True)
class BatchSplit:
    """How the rows of a batch are split over the ranks.

    Attributes:
        rows: the number of rows by rank.
        label_offset: the index of this rank's first row in the whole batch.
        weight: the factor of this rank's mean in the mean over all rows, times the number of ranks.
    """

    rows: tuple[int, ...]
    label_offset: int = 0
    weight: float = 1.0


def split_batch(rows: int, device: torch.device) -> BatchSplit:
    """Exchange the number of rows of each rank."""
    ranks = world_size()
    if ranks == 1:
        return BatchSplit((rows,))
    (counts,) = _AllGatherWithGrad.apply((1,) * ranks, torch.tensor([rows], device=device))
    return split_of(tuple(counts.tolist()))


def split_of(counts: tuple[int, ...]) -> BatchSplit:
    """Return the split of a batch, given the number of rows of each rank."""
    return BatchSplit(counts, sum(counts[: rank()]), counts[rank()] * len(counts) / sum(counts))


class _AllGatherWithGrad(torch.autograd.Function):
    """All ranks' rows of some tensors in rank order. Backward sums the first tensor's gradients over all ranks.

    torch.distributed.nn has such a function for one tensor, but it is deprecated.
    """

    @staticmethod
    def forward(ctx: Any, counts: tuple[int, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.counts = counts
        parts = [x.reshape(len(x), -1).contiguous().view(torch.uint8) for x in tensors]
        rows = torch.cat(parts, dim=1)
        padded = rows.new_zeros(max(counts), rows.shape[1])  # all ranks need equal shapes
        padded[: len(rows)] = rows
        gathered = rows.new_empty(len(counts) * len(padded), rows.shape[1])
        all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # before torch 2.13
        all_gather(gathered, padded)
        whole = torch.cat([part[:count] for part, count in zip(gathered.split(len(padded)), counts, strict=True)])
        columns = zip(whole.split([part.shape[1] for part in parts], dim=1), tensors, strict=True)
        results = tuple(column.contiguous().view(x.dtype).view(-1, *x.shape[1:]) for column, x in columns)
        ctx.mark_non_differentiable(*results[1:])
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = sum_over_ranks(gradients[0].contiguous()).split(ctx.counts)[rank()]
        return None, gradient, *(None for _ in gradients[1:])


def all_gather_with_grad(rows: Tensor, *constants: Tensor, split: BatchSplit | None = None) -> tuple[Tensor, ...]:
    """Return the rows of all ranks in rank order, with gradients, by one collective.

    Each rank computes the loss of its own anchors against the gathered rows, and multiplies it by its
    `BatchSplit.weight`. After DDP has averaged the gradients over ranks, they equal those of one device with the whole
    batch.

    Args:
        rows: this rank's rows [n, ...].
        constants: further tensors [n, ...] of any type, without gradients.
        split: the number of rows by rank; None to exchange it, which waits for a GPU. With one number, the rows are
            those of all ranks.
    """
    split = split or split_batch(len(rows), rows.device)
    if len(split.rows) == 1:
        return rows, *constants
    gathered: tuple[Tensor, ...] = _AllGatherWithGrad.apply(split.rows, rows, *constants)
    return gathered


def sum_over_ranks(values: Tensor) -> Tensor:
    """Return the sum of a tensor over all ranks, without gradients."""
    total = values.detach().clone()
    if world_size() > 1:
        dist.all_reduce(total)
    return total


def from_first_rank(values: Tensor) -> Tensor:
    """Return the values that rank 0 gives, without gradients: random numbers that all ranks share."""
    shared = values.detach().clone()
    if world_size() > 1:
        dist.broadcast(shared, src=0)
    return shared


def mean_over_ranks(values: Tensor, ignore_nan: bool = False) -> Tensor:
    """Return the mean of a tensor over all ranks, without gradients.

    With `ignore_nan`, an element is NaN only if it is NaN on all ranks.
    """
    counted = ~values.isnan() if ignore_nan else torch.ones_like(values, dtype=torch.bool)
    sums = sum_over_ranks(torch.stack([values.where(counted, 0), counted.to(values)]))
    return sums[0] / sums[1]
