"""Measuring any encoder: each protocol is given `encode`, sentences in and vectors [n, dim] out."""

from collections.abc import Callable

from torch import Tensor

Encode = Callable[[list[str]], Tensor]
