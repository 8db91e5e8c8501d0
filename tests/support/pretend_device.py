"""A pretend accelerator for torch: tensors on `pretend:0` compute real numbers on the CPU.

An operation that mixes the device with CPU tensors raises an error, as a CUDA kernel does. Operations that make the
host wait for a GPU (`.item()`, `nonzero`, boolean indexing, a blocking copy) are counted by line. The device shows
nothing about speed, NCCL or autocast.

    with Pretend() as device:
        module.to(DEVICE)
        module.training_step(batch_on(DEVICE), 0).backward()
    assert not device.synchronizations
"""

import traceback
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_NAME = "pretend"
_OF_VALUES = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "bincount")
_BETWEEN_DEVICES = ("copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_")


_BACKEND = SimpleNamespace(  # what torch asks of a device's module; random numbers are the CPU's
    is_available=lambda: True,
    is_initialized=lambda: True,
    _is_in_bad_fork=lambda: False,
    current_device=lambda: 0,
    device_count=lambda: 1,
    manual_seed_all=lambda seed: None,
    manual_seed=lambda seed: None,
    current_stream=lambda: SimpleNamespace(record_event=lambda: SimpleNamespace(synchronize=lambda: None)),
    get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
    get_rng_state=lambda device=None: torch.get_rng_state(),
    set_rng_state=lambda state, device=None: torch.set_rng_state(state),
    device=nullcontext,
)
_setup_privateuseone_for_python_backend(_NAME, backend_module=_BACKEND)
DEVICE = torch.device(f"{_NAME}:0")


class OnDevice(torch.Tensor):
    """A tensor on the device, whose numbers a CPU tensor holds."""

    values: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> "OnDevice":
        own: OnDevice = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=DEVICE,
        )
        own.values = values
        return own

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute outside of a `Pretend` too: backward and optimizers end up here."""
        return _compute(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnDevice":
        """Copy a leaf; torch's own copy needs a storage."""
        if id(self) not in memo:
            copy = OnDevice(self.values.detach().clone())
            is_parameter = isinstance(self, torch.nn.Parameter)
            memo[id(self)] = torch.nn.Parameter(copy, self.requires_grad) if is_parameter else copy
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a plain tensor, so that a checkpoint can be read without this module."""
        return self.values.__reduce_ex__(protocol)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        """Show the numbers."""
        return f"OnDevice({self.values})"


def _is_device(device: Any) -> bool:
    return device is not None and torch.device(device).type == _NAME


class Pretend:
    """A context in which the device can be used.

    Attributes:
        synchronizations: how often the host waited for the device, by the line of the project or library that did so.
    """

    active: "Pretend | None" = None

    def __init__(self) -> None:
        self.synchronizations: Counter[str] = Counter()
        self._modes: tuple[Any, ...] = (_Functions(), _Operations())

    def __enter__(self) -> "Pretend":
        Pretend.active = self
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)
        Pretend.active = None


class _Functions(TorchFunctionMode):
    """`torch.tensor(..., device=DEVICE)`, which torch makes below the level where operations are dispatched."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and _is_device(kwargs.get("device")):
            return func(*args, **kwargs | {"device": "cpu"}).to(kwargs["device"])
        return func(*args, **kwargs)


class _Operations(TorchDispatchMode):
    """Operations of plain tensors that make one on the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = tree_leaves((args, kwargs))
        if _is_device(kwargs.get("device")) or any(isinstance(own, OnDevice) for own in tensors):
            return _compute(func, args, kwargs)
        return func(*args, **kwargs)


def _compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the numbers, and put its results where the device would."""
    name = str(func).removeprefix("aten.").partition(".")[0]
    tensors = [own for own in tree_leaves((args, kwargs)) if isinstance(own, torch.Tensor)]
    here = [own for own in tensors if isinstance(own, OnDevice)]
    elsewhere = [own for own in tensors if not isinstance(own, OnDevice) and own.dim()]  # a scalar is copied
    if here and elsewhere and name not in _BETWEEN_DEVICES:
        shapes = [(tuple(own.shape), own.device.type) for own in tensors]
        raise RuntimeError(f"{func}: all tensors must be on one device, and are {shapes}")
    asked = kwargs.get("device")
    stays = _is_device(asked) if asked is not None else bool(here)
    if name == "copy_":
        stays = isinstance(args[0], OnDevice)
    _count(name, args, kwargs, here, elsewhere, stays)
    if _is_device(asked):
        kwargs = kwargs | {"device": torch.device("cpu")}
    if name == "_pin_memory":
        return args[0]
    plain = tree_map(lambda own: own.values if isinstance(own, OnDevice) else own, (args, kwargs))
    made = func(*plain[0], **plain[1])
    if not stays:
        return made
    known = {id(own.values): own for own in here}  # an operation in place returns what it was given

    def wrap(own: Any) -> Any:
        if not isinstance(own, torch.Tensor):
            return own
        return known[id(own)] if id(own) in known else OnDevice(own)

    return tree_map(wrap, made)


def _count(name: str, args: Any, kwargs: Any, here: list[Any], elsewhere: list[Any], stays: bool) -> None:
    counts = Pretend.active
    if counts is None:
        return
    moved = name in ("_to_copy", "copy_") and isinstance(args[name == "copy_"], OnDevice) != stays
    needs_values = name in _OF_VALUES or (name == "repeat_interleave" and kwargs.get("output_size") is None)
    if name.startswith(("index", "_index")):
        indices = [own for own in tree_leaves(args[1]) if own is not None]
        needs_values = bool(elsewhere) or any(own.dtype in (torch.bool, torch.uint8) for own in indices)
    if (here and needs_values) or (moved and not kwargs.get("non_blocking")):
        counts.synchronizations[f"{name} at {_asked_by()}"] += 1


def _asked_by() -> str:
    """The nearest line outside of torch, and the nearest of the project."""
    lines = [(frame.f_code.co_filename, number) for frame, number in traceback.walk_stack(None)]
    lines = [line for line in lines if "/torch/" not in line[0] and line[0] != __file__]
    of_project = [line for line in lines if "/simcse_pl/" in line[0]]
    nearest = dict.fromkeys([*lines[:1], *of_project[:1]])
    return " < ".join(f"{Path(file).parent.name}/{Path(file).name}:{number}" for file, number in nearest)


class _Accelerator(CPUAccelerator):
    """One pretend device for Lightning."""

    def setup_device(self, device: torch.device) -> None:
        """Lightning's would reject a device that is not the CPU."""


class PretendStrategy(SingleDeviceStrategy):
    """`Trainer(strategy=PretendStrategy(), inference_mode=False)`, within `Pretend()`."""

    def __init__(self) -> None:
        super().__init__(device=DEVICE, accelerator=_Accelerator())
