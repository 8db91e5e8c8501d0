"""Gradient caching: contrastive batches of any size in the memory of a small one (GradCache, Gao et al. 2021)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from simcse_pl.models.tokenization import Batch


def in_chunks(function: Callable[[Batch], Tensor], batch: Batch, chunk_size: int | None) -> Tensor:
    """What a function makes of a batch, a few rows at a time.

    No activations are kept of a chunk, only what the function returns. Backward comes to the chunks when the gradient
    of all that was returned is known, takes one after the other, and computes its activations again, under the same
    random numbers: gradients are those of one pass over all, dropout included, at the cost of a second forward pass.

    Args:
        function: its rows must not look at each other; its parameters may have gradients.
        batch: tensors [rows, ...].
        chunk_size: rows at once; all in one pass, and nothing computed twice, where None.

    Returns:
        What `function` returns of the chunks, concatenated.
    """
    rows = len(next(iter(batch.values())))
    if chunk_size is None or rows <= chunk_size:
        return function(batch)
    chunks = (
        {name: x[start : start + chunk_size] for name, x in batch.items()} for start in range(0, rows, chunk_size)
    )
    return torch.cat([checkpoint(function, chunk, use_reentrant=False) for chunk in chunks])
