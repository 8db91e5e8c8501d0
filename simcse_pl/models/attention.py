"""Attention of sdpa without waiting for a GPU."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from simcse_pl.utils.hub import quiet
from simcse_pl.utils.private import attention_functions, attention_of, register_attention
from simcse_pl.utils.types import Backbone

SDPA = "sdpa_without_synchronization"  # our names of implementations of attention: "sdpa" is for other models, too


def use_sdpa(model: Backbone, name: str = SDPA, attention: Callable[..., Any] | None = None) -> None:
    """Give a model with sdpa attention one of ours, whose masks are those of `mask_without_synchronization`.

    `name` is new to transformers, and stands for `attention`; None is that of transformers.
    """
    register_attention(name, attention or attention_functions("sdpa")[0], mask_without_synchronization)
    if attention_of(model.config) in ("sdpa", SDPA):
        with quiet("transformers.modeling_utils"):  # a model with attention of its own, such as Falcon, keeps it
            model.set_attn_implementation(name)


def mask_without_synchronization(*, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """Return the mask of sdpa attention that transformers makes, without waiting for a GPU.

    transformers omits the mask of a batch without padding. To find out whether there is padding, it waits for the GPU.
    On a GPU, the mask is therefore never omitted.
    """
    if attention_mask is not None and not attention_mask.is_cpu:
        options["allow_is_bidirectional_skip"] = False
    mask: Tensor | None = attention_functions("sdpa")[1](attention_mask=attention_mask, **options)
    return mask
