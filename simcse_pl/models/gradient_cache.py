"""How the views of a batch pass through an encoder: in chunks (GradCache, Gao et al. 2021), or with shared dropout."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from simcse_pl.utils.types import Batch


def apply_in_chunks(function: Callable[[Batch], Tensor], batch: Batch, chunk_size: float | None) -> Tensor:
    """Apply a function to a few rows of a batch at a time, without storing activations.

    The backward pass recomputes the activations of one chunk after the other, from the same random
    state. The gradients, dropout included, are those of one pass over the whole batch. The cost is
    a second forward pass.

    Args:
        function: maps tensors [rows, ...] to [rows, ...]. Each row must not depend on other rows.
        batch: tensors [rows, ...].
        chunk_size: rows per chunk. A float is their mean, and a chunk may have one row more. None applies the
            function once, without recomputation.

    Returns:
        The outputs for all chunks, concatenated.
    """
    rows = len(next(iter(batch.values())))
    if chunk_size is None or rows <= chunk_size:
        return function(batch)
    number = None if isinstance(chunk_size, int) else round(rows / chunk_size)
    columns = zip(*(x.tensor_split(number) if number else x.split(chunk_size) for x in batch.values()), strict=True)
    chunks = (dict(zip(batch, column, strict=True)) for column in columns)
    return torch.cat([checkpoint(function, chunk, use_reentrant=False) for chunk in chunks])


def pool_with_shared_dropout(pool: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """Pool all views [batch, views, tokens] with the same dropout masks ("fixed 0.1" in Table 3), [batch, views, dim].

    Each view is encoded in a separate pass, and all passes start from the same random state. Views
    are padded to the same shape, so the passes draw the same masks, and equal views get equal vectors.
    """
    ids = batch["input_ids"]
    devices = [] if ids.device.type == "cpu" else [ids.device]
    views = ids.shape[1]
    vectors = []
    for view in range(views):
        last = view == views - 1  # only the last pass advances the random state
        with nullcontext() if last else torch.random.fork_rng(devices, device_type=ids.device.type):
            vectors.append(pool({name: x[:, view] for name, x in batch.items()}))
    return torch.stack(vectors, dim=1)
