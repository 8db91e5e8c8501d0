"""A network beside the trained one that is neither trained nor saved."""

from collections.abc import Callable
from typing import Self

from torch import Tensor, nn


class Frozen(nn.Module):
    """A network that is not trained.

    It moves to the device of the module that it belongs to. It registers no parameters with that module,
    so that no optimizer, checkpoint or gradient reduction contains them. It keeps its own mode, training
    or evaluation.

    Attributes:
        network: the network.
    """

    network: nn.Module

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.__dict__["network"] = network.requires_grad_(False)  # not a submodule, whose weights would be saved

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.network._apply(fn, recurse)  # what .to() and .cuda() of the module call
        super()._apply(fn, recurse)
        return self
