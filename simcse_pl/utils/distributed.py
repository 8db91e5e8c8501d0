"""The ranks of a distributed run, and what they tell each other: the only file that knows of both."""

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from lightning_utilities.core.rank_zero import rank_zero_only  # what Lightning sets, without its import
from torch import Tensor


def world_size() -> int:
    """How many processes train together; 1 outside a distributed run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's place among them, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


def is_first_process() -> bool:
    """Whether this process is rank 0; told from the environment, so before the ranks have met as well."""
    return bool(getattr(rank_zero_only, "rank", 0) == 0)


def is_one_of_several() -> bool:
    """Whether this process is a rank among others, which have met or which SLURM has started."""
    return world_size() > 1 or int(os.environ.get("SLURM_NTASKS", "1")) > 1


@dataclass(frozen=True)
class BatchSplit:
    """How many rows of a batch each rank has.

    Args:
        rows: by rank.
        rank: this one.
    """

    rows: tuple[int, ...]
    rank: int = 0

    @property
    def label_offset(self) -> int:
        """The place in the whole batch of this rank's first row."""
        return sum(self.rows[: self.rank])

    @property
    def weight(self) -> float:
        """What to multiply a mean over this rank's rows with, for the mean over ranks to be that over all rows."""
        return self.rows[self.rank] * len(self.rows) / sum(self.rows)


def split_batch(rows: int, device: torch.device) -> BatchSplit:
    """Tell all ranks how many rows this one has, and learn theirs."""
    if world_size() == 1:
        return BatchSplit((rows,))
    counts = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world_size())]
    dist.all_gather(counts, torch.tensor([rows], device=device))
    return BatchSplit(tuple(int(count) for count in torch.cat(counts).tolist()), rank())


class _AllGatherWithGrad(torch.autograd.Function):
    """All ranks' rows in rank order; backward adds up what every rank has to say about ours."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: tuple[int, ...]) -> Tensor:
        ctx.counts = counts
        padded = rows.new_zeros(max(counts), *rows.shape[1:])  # ranks can only send tensors of one shape
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        return torch.cat([part[:count] for part, count in zip(gathered, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient)
        return gradient.split(ctx.counts)[rank()], None


def all_gather_with_grad(rows: Tensor, shares: BatchSplit) -> Tensor:
    """The rows of all ranks, with gradients.

    The loss of each rank's own anchors against the gathered rows, times its `BatchSplit.weight` and averaged over
    ranks as DDP averages gradients, has the gradient of one device that holds the whole batch.

    Args:
        rows: [n, ...], this rank's.
        shares: n by rank.

    Returns:
        [the sum of all n, ...] in rank order; `rows` itself outside a distributed run.
    """
    if world_size() == 1:
        return rows
    gathered: Tensor = _AllGatherWithGrad.apply(rows, shares.rows)
    return gathered


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of a tensor over all ranks, without gradients."""
    total = values.detach().clone()
    if world_size() > 1:
        dist.all_reduce(total)
    return total


def mean_over_ranks(values: Tensor, ignore_nan: bool = False) -> Tensor:
    """Return the mean of a tensor over all ranks, without gradients.

    Args:
        values: of one shape on all ranks.
        ignore_nan: take the mean over the ranks on which a value is a number; nan where it is one on no rank.
    """
    counted = ~values.isnan() if ignore_nan else torch.ones_like(values, dtype=torch.bool)
    total, ranks = sum_over_ranks(torch.stack([values.where(counted, 0), counted.to(values)]))
    mean: Tensor = total / ranks
    return mean
