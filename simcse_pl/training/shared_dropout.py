"""Shared dropout: the views of a row under the same masks ("fixed 0.1" of Table 3)."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from simcse_pl.models.tokenization import Batch


def embed_with_shared_dropout_mask(encoder: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """Embed every view of a batch under the same dropout masks.

    Each view is a pass of its own that starts from the same state of the random generators. Views are padded to the
    same shape, so the passes draw the same masks: equal views get equal vectors, and different ones share their masks
    token by token.

    Args:
        encoder: from inputs [batch, tokens] to vectors [batch, dim].
        batch: inputs [batch, views, tokens].

    Returns:
        [batch, views, dim].
    """
    ids = batch["input_ids"]
    devices = [] if ids.device.type == "cpu" else [ids.device]
    views = ids.shape[1]
    vectors = []
    for view in range(views):
        last = view == views - 1  # its pass moves the generators on, as any other pass does
        with nullcontext() if last else torch.random.fork_rng(devices, device_type=ids.device.type):
            vectors.append(encoder({name: x[:, view] for name, x in batch.items()}))
    return torch.stack(vectors, dim=1)
