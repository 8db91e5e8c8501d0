"""The ranks of a distributed run: the only file that knows of them."""

from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning.utilities import rank_zero_only
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


class _GatherRows(torch.autograd.Function):
    """All ranks' rows in rank order; backward adds up what every rank has to say about ours."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        gathered = [torch.empty_like(rows) for _ in range(world_size())]
        dist.all_gather(gathered, rows.contiguous())
        return torch.cat(gathered)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(world_size())[rank()]


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all ranks, with gradients.

    The loss of each rank's own anchors against the gathered rows, averaged over ranks as DDP averages
    gradients, has the gradient of one device that holds the whole batch.

    Args:
        rows: [n, ...], n alike on all ranks.

    Returns:
        [ranks x n, ...] in rank order; `rows` itself outside a distributed run.
    """
    if world_size() == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows)
    return gathered
