"""Training with weights in bfloat16, while the optimizer changes those in float32, as FSDP2's mixed precision does.

Autocast converts each weight, and the input of each layer, by a kernel of its own. Here, a few kernels convert all
weights, and the activations stay in bfloat16.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from pytorch_lightning import Trainer
from torch import Tensor, nn

from simcse_pl.models.backbone import recomputes_layers
from simcse_pl.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.private import own_tensors
from simcse_pl.utils.types import Backbone

_FLOAT32 = "weights_in_float32"  # of a backbone in a pass: its float32 weights, and whether autocast was on


def use_half_weights(module: SimCSEModule, trainer: Trainer) -> None:
    """Let the training passes of a module's encoders compute with bfloat16 weights. Their output is float32.

    Raises:
        UserError: the precision is not bf16-mixed, or the layers are sharded, or recomputed after the pass.
    """
    if trainer.precision != "bf16-mixed":
        raise UserError(f"module.half_weights: it needs trainer.precision=bf16-mixed, not {trainer.precision}")
    if module.sharded:
        raise UserError("module.half_weights: trainer=fsdp computes with bfloat16 weights anyway: set it to false")
    for encoder in module.encoders:
        if recomputes_layers(encoder.backbone):
            raise UserError("module.half_weights: layers cannot be recomputed: set module.gradient_checkpointing=false")
        if _FLOAT32 not in vars(encoder.backbone):
            vars(encoder.backbone)[_FLOAT32] = None
            encoder.backbone.register_forward_pre_hook(_replace_weights, with_kwargs=True)
            encoder.backbone.register_forward_hook(_restore_weights, with_kwargs=True, always_call=True)


def _replace_weights(
    backbone: Backbone, arguments: tuple[Any, ...], inputs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    if not backbone.training:
        return None
    parts = [own_tensors(part)[0] for part in _all_modules(backbone)]
    named = [(part, name) for part in parts for name in part]
    named = [(part, name) for part, name in named if part[name] is not None and part[name].dtype == torch.float32]
    weights = {id(part[name]): part[name] for part, name in named}  # parts may share a weight
    halves: dict[int, Tensor] = {}
    for trained, convert in ((True, _InBFloat16.apply), (False, partial(_converted, dtype=torch.bfloat16))):
        some = {key: weight for key, weight in weights.items() if weight.requires_grad == trained}
        halves |= zip(some, convert(*some.values()), strict=True)  # type: ignore[no-untyped-call]
    device = backbone.device.type
    vars(backbone)[_FLOAT32] = [(part, name, part[name]) for part, name in named], torch.is_autocast_enabled(device)
    for part, name in named:
        part[name] = halves[id(part[name])]
    torch.set_autocast_enabled(device, False)
    return arguments, {name: _as(torch.bfloat16, x) for name, x in inputs.items()}


def _all_modules(backbone: Backbone) -> Iterator[nn.Module]:
    """Yield the modules of a backbone, and those that a loss has given to its layers (see methods/tsdae.py)."""
    for part in backbone.modules():
        yield part
        if isinstance(added := vars(part).get("crossattention"), nn.Module):
            yield from added.modules()


def _restore_weights(backbone: Backbone, arguments: tuple[Any, ...], inputs: dict[str, Any], output: Any) -> None:
    if replaced := vars(backbone)[_FLOAT32]:
        weights, autocast = replaced
        vars(backbone)[_FLOAT32] = None
        for part, name, weight in weights:
            part[name] = weight
        torch.set_autocast_enabled(backbone.device.type, autocast)
        for name in list(output or ()):  # None after an error
            output[name] = _as(torch.float32, output[name])


def _as(dtype: torch.dtype, value: Any) -> Any:
    """Return a tensor of floating-point numbers, or a tuple of them, in another precision."""
    if type(value) is tuple:  # a named one, such as Packing, has positions
        return tuple(_as(dtype, x) for x in value)
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


class _InBFloat16(torch.autograd.Function):
    """Convert weights to bfloat16, and their gradients back."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return _converted(*weights, dtype=torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        converted = iter(_converted(*(x for x in gradients if x is not None), dtype=torch.float32))
        return tuple(None if x is None else next(converted) for x in gradients)


@torch.no_grad()
def _converted(*tensors: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    copies = tuple(torch.empty_like(x, dtype=dtype) for x in tensors)
    if copies:
        torch._foreach_copy_(copies, tensors)
    return copies
