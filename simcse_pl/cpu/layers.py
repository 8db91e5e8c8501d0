"""Layers that are faster than torch's and transformers' own: dropout, attention, attention masks, linear layers.

Dropout: torch draws one random float per element. Here a small fast generator (SFC64) fills memory with random bits,
which integer operations turn into factors: 0 or 1 / (1 - p). Rates are exact to `2**-15` in half precision and to
`2**-31` in float32.

Linear layers: torch multiplies float32 matrices with MKL, which does not use AVX-512 on AMD's processors. oneDNN, which
torch has for bfloat16, does: on a Zen 5, products take half the time (`python -m benchmarks.encode`,
`benchmarks.train`).
"""

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simcse_pl.utils.hub import quiet
from simcse_pl.utils.types import Backbone

_INTEGER = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}
_SDPA = "sdpa_without_synchronization"  # our names of implementations of attention: "sdpa" is for other models, too
_FAST_DROPOUT = "sdpa_with_fast_dropout"
_ATTENTION_OPTIONS = ("position_bias", "cache", "softcap")
_CPU_INFO = Path("/proc/cpuinfo")  # of Linux
_ZEN_5 = 26  # its CPU family; on earlier ones, AVX-512 is not faster than AVX2


def use_fast_dropout(backbone: Backbone) -> None:
    """Replace a backbone's nn.Dropout modules and sdpa attention by faster ones."""
    for module in list(backbone.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, FastDropout(child.p).train(child.training))
    use_sdpa(backbone, _FAST_DROPOUT)


class FastDropout(nn.Dropout):
    """Dropout (Srivastava et al. 2014), seeded once per call from torch's global random state."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, in training with elements zeroed at random and the others scaled."""
        return fast_dropout(input, self.p) if self.training else input


def fast_dropout(x: Tensor, p: float) -> Tensor:
    """Zero elements with probability `p` and scale the others by 1 / (1 - p).

    On other devices and in float64 this is torch's own dropout.
    """
    if p == 0 or not len(x) or not x.is_cpu or x.dtype not in _INTEGER:
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
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    special = any(options.get(name) is not None for name in _ATTENTION_OPTIONS) or query.shape != key.shape
    causal = options.get("is_causal", getattr(module, "is_causal", True)) and attention_mask is None
    if dropout == 0 or special or causal or not query.is_cpu:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
    scores = query * (query.shape[-1] ** -0.5 if scaling is None else scaling) @ key.transpose(-1, -2)
    if attention_mask is not None:  # True or 0: attended to
        if not attention_mask.is_floating_point():
            lowest = torch.finfo(scores.dtype).min
            attention_mask = torch.zeros_like(attention_mask, dtype=scores.dtype).masked_fill_(~attention_mask, lowest)
        scores = scores + attention_mask
    return (fast_dropout(scores.softmax(dim=-1), dropout) @ value).transpose(1, 2).contiguous(), None


def use_sdpa(model: Backbone, name: str = _SDPA) -> None:
    """Give a model with sdpa attention one of ours, whose masks are those of `mask_without_synchronization`."""
    from transformers import AttentionInterface  # slow, and not needed before there is a model
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import AttentionMaskInterface

    for ours, attention in ((_SDPA, sdpa_attention_forward), (_FAST_DROPOUT, attention_with_fast_dropout)):
        AttentionInterface.register(ours, attention)
        AttentionMaskInterface.register(ours, mask_without_synchronization)
    if model.config._attn_implementation in ("sdpa", _SDPA):
        with quiet("transformers.modeling_utils"):  # a model with attention of its own, such as Falcon, keeps it
            model.set_attn_implementation(name)


def mask_without_synchronization(*, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """Return the mask of sdpa attention that transformers makes, without waiting for a GPU.

    transformers omits the mask of a batch without padding. To find out whether there is padding, it waits for the GPU.
    On a GPU, the mask is therefore never omitted.
    """
    from transformers.masking_utils import sdpa_mask  # slow, as above

    if attention_mask is not None and not attention_mask.is_cpu:
        options["allow_is_bidirectional_skip"] = False
    return sdpa_mask(attention_mask=attention_mask, **options)


def use_onednn_linear(model: nn.Module) -> None:
    """Let the linear layers of a model use oneDNN, if torch's own are slow on this CPU."""
    if onednn_is_faster():
        for module in model.modules():
            if type(module) is nn.Linear and type(module.weight) is nn.Parameter:  # not a quantized weight
                module.__class__ = OneDNNLinear


@functools.cache
def onednn_is_faster() -> bool:
    """Return whether this is an AMD processor with AVX-512 units of full width, from Zen 5 on."""
    if not (_CPU_INFO.is_file() and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    info = _CPU_INFO.read_text(encoding="utf-8")
    family = re.search(r"^cpu family\s*: (\d+)$", info, flags=re.MULTILINE)
    is_new = family is not None and int(family[1]) >= _ZEN_5
    return "AuthenticAMD" in info and is_new and torch.backends.cpu.get_cpu_capability() == "AVX512"


class OneDNNLinear(nn.Linear):
    """A linear layer that uses oneDNN in float32 on a CPU, and otherwise is torch's."""

    def forward(self, input: Tensor) -> Tensor:
        """Return [..., out_features]."""
        if (
            not (input.is_cpu and input.dtype == self.weight.dtype == torch.float32)
            or not input.numel()
            or input.shape[-1] != self.weight.shape[1]  # torch raises the error
            or torch.is_autocast_enabled("cpu")
            or torch.compiler.is_compiling()
            or torch._C._get_tracing_state()
            or torch._C._are_functorch_transforms_active()
        ):
            return super().forward(input)
        rows = input.reshape(-1, input.shape[-1]).contiguous()
        product: Tensor = _Product.apply(rows, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return product.view(*input.shape[:-1], -1)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        return _multiply(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        multiply = F.linear if torch.is_grad_enabled() else _multiply  # a gradient of the gradient needs torch's
        return (
            None if weight is None else multiply(gradient, weight.T),
            None if x is None else multiply(gradient.T, x.T),
            gradient.sum(dim=0) if ctx.needs_input_grad[2] else None,
        )


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias of matrices."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product
