"""Record the operations of a training step and replay them, as a CUDA graph does, on the CPU.

Every tensor of the recorded step stays where it is: a replay runs the same operations with the same arguments and
writes their results to the same memory. What the step needs of a batch must therefore be in tensors that are filled
anew before a replay. All else that Python computed, such as a shape or a number, is that of the recorded step: if a
replay on another batch gives what an eager step on it gives, then a CUDA graph would, too.

It shows neither where tensors are, which tests/test_devices.py does, nor what a kernel of CUDA does within an
operation.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Their kernels read values of the device, the last two for the shape of their result.
_OF_VALUES = ("_linalg_eigh", "_linalg_svd", "bincount", "repeat_interleave")


class NotRecordable(Exception):  # noqa: N818  that a step is not recordable is no error of the recorder
    """An operation gives a value to the host, or has a shape that depends on values."""


class RecordedGraph(TorchDispatchMode):
    """A graph of the CPU, as CapturedSteps makes them: the first replay is the recording.

    Attributes:
        results: what the function returned, in memory that each replay writes to.

    Raises:
        NotRecordable: the step is not the same operations for every batch.
    """

    def __init__(self, function: Callable[[], Any], pool: Any) -> None:
        super().__init__()
        self.replays = 0
        self._calls: list[tuple[Any, Any, Any, Any]] = []  # operation, arguments, named arguments, results
        with self:
            self.results = function()

    @torch.no_grad()
    def replay(self) -> None:
        """Run the operations once more, unless they have just been recorded."""
        with torch.autocast("cpu", enabled=False):  # they are below autocast
            for operation, arguments, named, results in self._calls if self.replays else ():
                for kept, new in zip(tree_leaves(results), tree_leaves(operation(*arguments, **named)), strict=True):
                    if isinstance(kept, Tensor) and kept.data_ptr() != new.data_ptr():  # no view, and not in place
                        kept.copy_(new)
        self.replays += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and keep it."""
        _check(func, args, kwargs or {})
        results = func(*args, **kwargs or {})
        if func.namespace != "profiler":
            self._calls.append((func, args, kwargs or {}, results))
        return results


def _check(func: Any, args: Any, kwargs: Any) -> None:
    """Raise NotRecordable if the shape of an operation's result depends on values, or if it reads them."""
    name = str(func).removeprefix("aten.").partition(".")[0]
    if torch.Tag.data_dependent_output in func.tags:
        raise NotRecordable(f"{func} gives a value to the host")
    if name.startswith(("index", "_index", "_unsafe_index")) and isinstance(args[1], list | tuple):
        if any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1]):
            raise NotRecordable(f"{func} with a boolean index has a shape that depends on values")
    elif (torch.Tag.dynamic_output_shape in func.tags or name in _OF_VALUES) and kwargs.get("output_size") is None:
        raise NotRecordable(f"{func} has a shape that depends on values, or reads them")
