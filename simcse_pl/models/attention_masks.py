"""Attention masks for a GPU, built without synchronization."""

from typing import Any

from torch import Tensor
from transformers.masking_utils import sdpa_mask


def sdpa_mask_without_synchronization(
    *, attention_mask: Tensor | None = None, allow_is_bidirectional_skip: bool = False, **options: Any
) -> Tensor | None:
    """Build the attention mask as transformers does, but on a GPU also for batches without padding.

    transformers omits the mask of a batch without padding. To find out whether there is padding, it waits for the GPU.
    """
    skip = allow_is_bidirectional_skip and (attention_mask is None or attention_mask.is_cpu)
    return sdpa_mask(attention_mask=attention_mask, allow_is_bidirectional_skip=skip, **options)
