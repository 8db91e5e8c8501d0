"""Unit vectors, precision and devices."""

from collections.abc import Mapping

import torch
from torch import Tensor


def to_device(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Copy tensors of the CPU to a device. A GPU copies them while the host goes on."""
    if device.type == "cuda":
        tensors = {name: x.pin_memory() for name, x in tensors.items()}
    return {name: x.to(device, non_blocking=True) for name, x in tensors.items()}


def at_least_float32(x: Tensor) -> Tensor:
    """Return half precision as float32, and any other tensor unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def as_float64(x: Tensor) -> Tensor:
    """Return a tensor in float64; on the CPU if its device has no float64 (Apple's MPS)."""
    try:
        return x.double()
    except TypeError:
        return x.cpu().double()


def unit_vectors(x: Tensor) -> Tensor:
    """Divide vectors [..., dim] by their Euclidean norm, in float32 if they are in half precision.

    A vector of zeros stays zeros, with gradient 0, so that its cosines are 0.
    """
    x = at_least_float32(x)
    lengths: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / lengths.masked_fill(lengths == 0, torch.inf)


def cosine_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosine similarity of each pair of rows, [n] in float64, for two tensors [n, dim].

    The similarity with a zero vector is 0.
    """
    return (unit_vectors(as_float64(first)) * unit_vectors(as_float64(second))).sum(dim=-1)
