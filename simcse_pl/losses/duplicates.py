"""Negatives that are no negatives, as a batch holds the same sentence twice."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from simcse_pl.models.tokenization import Batch


def hash_token_ids(batch: Batch) -> Tensor:
    """A number for every sentence, the same for the same tokens however far they are padded.

    Args:
        batch: `input_ids` and `attention_mask`, [batch, views, tokens].

    Returns:
        [batch, views] int64; other sentences have another number, but for one pair in 2^64.
    """
    ids, mask = batch["input_ids"], batch["attention_mask"]
    return ((ids + 1) * mask * _factors(ids.shape[-1], ids.device)).sum(dim=-1)


@cache
def _factors(tokens: int, device: torch.device) -> Tensor:
    """Return a random number for each position; a shorter sentence has the first of a longer one's."""
    numbers = np.random.SeedSequence(0).generate_state(tokens, np.uint64).view(np.int64)
    return torch.from_numpy(numbers).to(device)


def duplicate_negatives(keys: Tensor, others: Tensor, label_offset: int = 0) -> Tensor:
    """Which of the negatives of each row are the row's own sentences over again.

    The positive of another row is, where that row has this row's anchor or positive among its own two; a hard
    negative, where it is this row's anchor or positive itself.

    Args:
        keys: [n, views], of `hash_token_ids`: anchor, positive, then any hard negatives.
        others: [m, views], of all rows that are contrasted with; m > n where some are on other devices.
        label_offset: the place in `others` of the first of `keys`.

    Returns:
        [n, m (views - 1)] bool in the order of `contrastive_loss`: all positives, then the hard negatives row by row.
    """
    same = (keys[:, None, :2, None] == others[None, :, None, :]).any(dim=2)  # [n, m, views]
    positives = same[:, :, :2].any(dim=2)
    own = torch.arange(len(keys), device=keys.device)
    positives[own, label_offset + own] = False
    return torch.cat([positives, same[:, :, 2:].flatten(1)], dim=1)
