"""Attention masks for a GPU, built without waiting for it."""

from typing import Any

from torch import Tensor
from transformers import AttentionMaskInterface
from transformers.masking_utils import sdpa_mask


def build_masks_without_waiting() -> None:
    """Give all models of this process `sdpa_mask_without_waiting` for scaled_dot_product_attention."""
    AttentionMaskInterface.register("sdpa", sdpa_mask_without_waiting)


def sdpa_mask_without_waiting(
    *, attention_mask: Tensor | None = None, allow_is_bidirectional_skip: bool = False, **options: Any
) -> Tensor | None:
    """Build transformers' mask; on a GPU, for batches without padding too.

    To leave the mask out there, transformers asks the GPU at every forward pass whether any token is padded.
    """
    skip = allow_is_bidirectional_skip and (attention_mask is None or attention_mask.is_cpu)
    return sdpa_mask(attention_mask=attention_mask, allow_is_bidirectional_skip=skip, **options)
