"""Gradient caching: large batches in the memory of small ones (GradCache, Gao et al. 2021)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from simcse_pl.models.tokenization import Batch


def apply_in_chunks(function: Callable[[Batch], Tensor], batch: Batch, chunk_size: int | None) -> Tensor:
    """Apply a function to a few rows of a batch at a time, without storing activations.

    The backward pass recomputes the activations of one chunk after the other, from the same random
    state. The gradients, dropout included, are those of one pass over the whole batch. The cost is
    a second forward pass.

    Args:
        function: maps tensors [rows, ...] to [rows, ...]. Each row must not depend on other rows.
        batch: tensors [rows, ...].
        chunk_size: rows per chunk. None applies the function once, without recomputation.

    Returns:
        The outputs for all chunks, concatenated.
    """
    rows = len(next(iter(batch.values())))
    if chunk_size is None or rows <= chunk_size:
        return function(batch)
    columns = zip(*(x.split(chunk_size) for x in batch.values()), strict=True)
    chunks = (dict(zip(batch, column, strict=True)) for column in columns)
    return torch.cat([checkpoint(function, chunk, use_reentrant=False) for chunk in chunks])
