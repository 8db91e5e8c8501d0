"""Linear layers by oneDNN.

torch multiplies float32 matrices with MKL, which does not use AVX-512 on AMD's processors. oneDNN, which torch has for
bfloat16, does: on a Zen 5, products take half the time (`python -m benchmarks.encode`, `benchmarks.train`).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simcse_pl.utils.private import is_traced, linear_by_onednn


def use_onednn_linear(model: nn.Module) -> None:
    """Let the linear layers of a model use oneDNN."""
    for module in model.modules():
        if type(module) is nn.Linear and type(module.weight) is nn.Parameter:  # not a quantized weight
            module.__class__ = OneDNNLinear


class OneDNNLinear(nn.Linear):
    """A linear layer that uses oneDNN in float32 on a CPU, and otherwise is torch's."""

    def forward(self, input: Tensor) -> Tensor:
        if (
            not (input.is_cpu and input.dtype == self.weight.dtype == torch.float32)
            or not input.numel()
            or input.shape[-1] != self.weight.shape[1]  # torch raises the error
            or torch.is_autocast_enabled("cpu")
            or torch.compiler.is_compiling()
            or is_traced()
        ):
            return super().forward(input)
        rows = input.reshape(-1, input.shape[-1]).contiguous()
        product: Tensor = _Product.apply(rows, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return product.view(*input.shape[:-1], -1)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        needs_x, needs_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
        product: Tensor = linear_by_onednn(x, weight, bias)
        return product

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        multiply = F.linear if torch.is_grad_enabled() else linear_by_onednn  # a gradient of the gradient needs torch's
        return (
            None if weight is None else multiply(gradient, weight.T),
            None if x is None else multiply(gradient.T, x.T),
            gradient.sum(dim=0) if ctx.needs_input_grad[2] else None,
        )
