"""What every cosine begins with: vectors at length 1, in a precision that their products can bear."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """The same numbers, in float32 where they were in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def as_float64(x: Tensor) -> Tensor:
    """Return the same numbers in float64, on the CPU where the device has no float64 (Apple's MPS)."""
    try:
        return x.double()
    except TypeError:
        return x.cpu().double()


def unit_vectors(x: Tensor) -> Tensor:
    """Vectors divided by their lengths.

    A vector of zeros has no direction: it stays zeros, its cosines count as 0, and its gradient is 0.

    Args:
        x: [..., dim].

    Returns:
        Of the shape of `x`, at least in float32.
    """
    x = at_least_float32(x)
    lengths: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / lengths.masked_fill(lengths == 0, torch.inf)


def cosine_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosine similarity of each pair of rows, [n] in float64, for two tensors [n, dim].

    The similarity with a zero vector is 0.
    """
    return (unit_vectors(as_float64(first)) * unit_vectors(as_float64(second))).sum(dim=-1)
