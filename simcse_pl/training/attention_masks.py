"""Attention masks for a GPU, built without synchronization."""

from typing import Any

from torch import Tensor
from transformers import AttentionMaskInterface
from transformers.masking_utils import sdpa_mask


def use_masks_without_synchronization() -> None:
    """Use `sdpa_mask_without_synchronization` in all models of this process."""
    AttentionMaskInterface.register("sdpa", sdpa_mask_without_synchronization)


def sdpa_mask_without_synchronization(
    *, attention_mask: Tensor | None = None, allow_is_bidirectional_skip: bool = False, **options: Any
) -> Tensor | None:
    """Build the attention mask as transformers does, but on a GPU for batches without padding too.

    transformers builds none for such batches. To find out whether a batch has padding, it waits for the
    GPU in every forward pass.
    """
    skip = allow_is_bidirectional_skip and (attention_mask is None or attention_mask.is_cpu)
    return sdpa_mask(attention_mask=attention_mask, allow_is_bidirectional_skip=skip, **options)
