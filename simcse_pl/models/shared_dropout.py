"""Shared dropout: the same dropout masks for all views of a row ("fixed 0.1" in Table 3)."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from simcse_pl.models.tokenization import Batch


def pool_with_shared_dropout(pool: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """Pool all views of a batch with the same dropout masks.

    Each view is encoded in a separate pass, and all passes start from the same random state. Views
    are padded to the same shape, so the passes draw the same masks, and equal views get equal vectors.

    Returns:
        [batch, views, dim] for tensors [batch, views, tokens].
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
