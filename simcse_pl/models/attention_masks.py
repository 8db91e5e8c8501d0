"""Attention masks for a GPU, built without synchronization."""

from typing import Any

from torch import Tensor


def use_masks_without_synchronization(attention: str = "sdpa") -> None:
    """Build the masks of an implementation of attention as transformers does, without waiting for a GPU.

    transformers omits the mask of a batch without padding. To find out whether there is padding, it waits for the GPU.
    On a GPU, the mask is therefore never omitted.
    """
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask  # slow, and not needed before a model is

    def mask(
        *, attention_mask: Tensor | None = None, allow_is_bidirectional_skip: bool = False, **options: Any
    ) -> Tensor | None:
        skip = allow_is_bidirectional_skip and (attention_mask is None or attention_mask.is_cpu)
        return sdpa_mask(attention_mask=attention_mask, allow_is_bidirectional_skip=skip, **options)

    AttentionMaskInterface.register(attention, mask)
