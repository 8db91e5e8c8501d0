"""Linear layers in float32 by oneDNN, on CPUs where torch's own are slow.

torch multiplies float32 matrices with MKL. On processors of other vendors than Intel, MKL does not use AVX-512. oneDNN,
which torch has for bfloat16, does: products take half the time (`python -m benchmarks.encode`, `benchmarks.train`).
"""

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_CPU_INFO = Path("/proc/cpuinfo")  # of Linux


def use_onednn_linear(model: nn.Module) -> None:
    """Let the linear layers of a model use oneDNN, if torch's own are slow on this CPU."""
    if onednn_is_faster():
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = OneDNNLinear


@functools.cache
def onednn_is_faster() -> bool:
    """Return whether this CPU has AVX-512, and is not Intel's."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not _CPU_INFO.is_file():
        return False
    return torch.backends.mkl.is_available() and "GenuineIntel" not in _CPU_INFO.read_text(encoding="utf-8")


class OneDNNLinear(nn.Linear):
    """A linear layer that uses oneDNN in float32 on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """Return [..., out_features]."""
        if (
            not (input.is_cpu and input.dtype == self.weight.dtype == torch.float32)
            or not input.numel()
            or torch.is_autocast_enabled("cpu")
            or torch.compiler.is_compiling()
        ):
            return super().forward(input)
        product: Tensor = _Product.apply(input.reshape(-1, self.in_features), self.weight, self.bias)  # type: ignore[no-untyped-call]
        return product.view(*input.shape[:-1], -1)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            _multiply(gradient, weight.T) if of_x else None,
            _multiply(gradient.T, x.T) if of_weight else None,
            gradient.sum(dim=0) if of_bias else None,
        )


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias of matrices."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product
