"""Dropout, and attention with it, that are faster than torch's on a CPU.

torch draws one random float per element. Here a small fast generator (SFC64) fills memory with random bits, which
integer operations turn into factors: 0 or 1 / (1 - p). Rates are exact to `2**-15` in half precision and to `2**-31` in
float32.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simcse_pl.models.backbone import use_sdpa
from simcse_pl.utils.private import attention_functions
from simcse_pl.utils.types import Backbone

_INTEGER = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}
_FAST_DROPOUT = "sdpa_with_fast_dropout"
_ATTENTION_OPTIONS = ("position_bias", "cache", "softcap")


def use_fast_dropout(backbone: Backbone) -> None:
    """Replace a backbone's nn.Dropout modules and sdpa attention by faster ones."""
    for module in list(backbone.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, FastDropout(child.p).train(child.training))
    use_sdpa(backbone, _FAST_DROPOUT, attention_with_fast_dropout)


class FastDropout(nn.Dropout):
    """Dropout (Srivastava et al. 2014), seeded once per call from torch's global random state."""

    def forward(self, input: Tensor) -> Tensor:
        return fast_dropout(input, self.p) if self.training else input


def fast_dropout(x: Tensor, p: float) -> Tensor:
    """Zero elements with probability `p` and scale the others by 1 / (1 - p).

    On other devices and in float64 this is torch's own dropout.
    """
    if p in (0, 1) or not len(x) or not x.is_cpu or x.dtype not in _INTEGER:
        return F.dropout(x, p)
    integer = _INTEGER[x.dtype]
    limits = torch.iinfo(integer)
    seed = int(torch.randint(torch.iinfo(torch.int64).max, ()))
    words = np.random.SFC64(seed).random_raw(-(-x.numel() * limits.bits // 64))
    drawn = torch.from_numpy(words.view(np.int64)).view(integer)[: x.numel()].view(x.shape)
    below = drawn.bitwise_and_(limits.max).sub_(round(p * limits.max))  # negative: dropped
    kept = below.bitwise_right_shift_(limits.bits - 1).bitwise_not_()  # all bits set, or none
    scale = torch.tensor(1 / (1 - p), dtype=x.dtype).view(integer)
    return x * kept.bitwise_and_(scale).view(x.dtype)


def attention_with_fast_dropout(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention for transformers, of query, key and value [batch, heads, tokens, dim].

    On a CPU, torch has no fused kernel for attention with dropout, and computes it in float32 in all precisions.
    """
    special = any(options.get(name) is not None for name in _ATTENTION_OPTIONS) or query.shape != key.shape
    causal = options.get("is_causal", getattr(module, "is_causal", True)) and attention_mask is None
    if dropout == 0 or special or causal or not query.is_cpu:
        compute, _ = attention_functions("sdpa")
        attended: tuple[Tensor, None] = compute(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
        return attended
    scores = query * (query.shape[-1] ** -0.5 if scaling is None else scaling) @ key.transpose(-1, -2)
    if attention_mask is not None:  # True or 0: attended to
        if not attention_mask.is_floating_point():
            lowest = torch.finfo(scores.dtype).min
            attention_mask = torch.zeros_like(attention_mask, dtype=scores.dtype).masked_fill_(~attention_mask, lowest)
        scores = scores + attention_mask
    return (fast_dropout(scores.softmax(dim=-1), dropout) @ value).transpose(1, 2).contiguous(), None
