"""False negatives that arise because a batch contains a sentence more than once."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from simcse_pl.models.templates import SENTENCE_MASK
from simcse_pl.utils.types import Batch


def hash_token_ids(batch: Batch) -> Tensor:
    """Return a 64-bit hash of each sentence's token ids, which does not depend on padding.

    It does not depend on the sentence's template if the batch has a `sentence_mask` (see templates.py).
    For tensors [batch, views, tokens] it is [batch, views] int64. Different sentences have the same hash
    with negligible probability.
    """
    ids = batch["input_ids"]
    factors = _factors(ids.shape[-1], ids.device)
    if (mask := batch.get(SENTENCE_MASK)) is None:
        mask = batch["attention_mask"]
    else:
        factors = factors[(mask.cumsum(dim=-1) - 1).clamp(min=0)]  # of the position in the sentence
    return ((ids + 1) * mask * factors).sum(dim=-1)


@cache
def _factors(tokens: int, device: torch.device) -> Tensor:
    """Return one random factor per position; more tokens append factors and change none."""
    numbers = np.random.SeedSequence(0).generate_state(tokens, np.uint64).view(np.int64)
    return torch.from_numpy(numbers).to(device)


def duplicate_negatives(hashes: Tensor, others: Tensor, label_offset: int = 0, positives: int = 1) -> Tensor:
    """Return which negatives of each row repeat one of the row's own sentences: its anchor and positives.

    All positives of another row are duplicates if that row's anchor or one of its positives equals one of
    this row's own sentences. A hard negative is a duplicate if it equals one of them. A row's own
    positives never are.

    Args:
        hashes: [n, views], from `hash_token_ids`: anchor, positives, then any hard negatives.
        others: [m, views], the hashes of all rows of the batch; m > n if some are on other devices.
        label_offset: the index in `others` of the first row of `hashes`.
        positives: the number of positives of a row.

    Returns:
        [n, m (views - 1)] bool, a `negative_mask` of `contrastive_loss` for each of the positives: one
        positive of each row, then the row's other positives and hard negatives row by row.
    """
    num_own = 1 + positives
    same = (hashes[:, None, :num_own, None] == others[None, :, None, :]).any(dim=2)  # [n, m, views]
    repeated = same[:, :, :num_own].any(dim=2)
    rows = torch.arange(len(hashes), device=hashes.device)
    repeated[rows, label_offset + rows] = False
    masked = torch.cat([repeated[:, :, None].expand(-1, -1, positives), same[:, :, num_own:]], dim=2)
    return torch.cat([masked[:, :, :1].flatten(1), masked[:, :, 1:].flatten(1)], dim=1)
