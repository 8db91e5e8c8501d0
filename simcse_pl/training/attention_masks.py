"""Attention masks for a GPU, built without synchronization."""

from typing import Any

from torch import Tensor
from transformers.masking_utils import sdpa_mask


def sdpa_mask_without_synchronization(
    *, attention_mask: Tensor | None = None, allow_is_bidirectional_skip: bool = False, **options: Any
) -> Tensor | None:
    """Build the attention mask as transformers does; on a GPU, for batches without padding too.

    transformers skips the masks of such batches, and waits for the GPU to find out which these are.
    """
    skip = allow_is_bidirectional_skip and (attention_mask is None or attention_mask.is_cpu)
    return sdpa_mask(attention_mask=attention_mask, allow_is_bidirectional_skip=skip, **options)
