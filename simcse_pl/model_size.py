"""How large a model a folder may ask for: no larger than its weights. The folder may come from a stranger.

A config is a few hundred bytes, and what it asks for is built before any weight is read.
"""

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from transformers import AutoModel, PreTrainedConfig

from simcse_pl.encoder_files import check_zip, find_file
from simcse_pl.errors import UserError
from simcse_pl.files import read_json

_MOST_LAYERS = 10_000  # and labels, of which configs make a list as they are read
_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_SMALLEST_ENTRY = 64  # bytes that a tensor takes of a pickle
_SPARE = 16  # tensors that a model may have and its file may not: those of a pooler, say


@dataclass(frozen=True)
class Size:
    """Of weights: an upper bound of their elements, and of the tensors that they are in."""

    elements: int
    tensors: int


def check_config(path: Path) -> None:
    """Refuse a config with more layers or labels than any model has, or with code of the hub to compute attention.

    Raises:
        UserError: it has; or it is no JSON object.
    """
    config = read_json(path)
    if not isinstance(config, dict):
        raise UserError(f"{path} is damaged: it must be a JSON object")
    for name, value in _values(config):
        if isinstance(value, int | float) and ("layer" in name or "label" in name) and value > _MOST_LAYERS:
            raise UserError(f"{path} is damaged: {name} is {value}, and no model has more than {_MOST_LAYERS}")
        if isinstance(value, str) and "/" in value and name.endswith("_implementation"):
            raise UserError(f"{path}: {name} is {value}, code of a hub repository, which is not run")


def _values(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Those of a config and of the configs in it, but not of its labels."""
    for name, value in config.items():
        if isinstance(value, dict) and name != "label2id":
            yield from _values(value)
        else:
            yield name, value


def size_of_files(source: str, subfolder: str, config: PreTrainedConfig) -> Size | None:
    """The size of a model folder's weights; None where it has none that we know of.

    Raises:
        UserError: an index of several files that is damaged, or names files outside of the folder; a packed file.
    """
    own = getattr(config, "transformers_weights", None)
    names = (str(PurePosixPath(subfolder, name)) for name in ([own] if own else _FILES))
    path = next(filter(None, (find_file(source, name) for name in names)), None)
    if path is None:
        return None
    if path.suffix != ".json":
        return _sum([_size(path)])
    files = (find_file(source, str(PurePosixPath(subfolder, name))) for name in _files_of_index(path))
    return _sum(_size(file) for file in files if file is not None)


def size_of_tensors(tensors: Mapping[str, Tensor]) -> Size:
    """The size of weights in memory, of which several may share one storage."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors.values()}
    return Size(sum(storage.nbytes() for storage in storages.values()), len(tensors))


def check_size(config: PreTrainedConfig, size: Size) -> None:
    """Refuse a config of a larger model, before there is memory in it.

    Raises:
        ValueError: it makes one; or whatever the library makes of a damaged config.
    """
    with torch.device("meta"), _no_larger_than(size):
        AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)


@contextmanager
def _no_larger_than(size: Size) -> Iterator[None]:
    elements, tensors = size.elements, 2 * size.tensors + _SPARE  # tied ones are registered twice

    def count(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        nonlocal elements, tensors
        if tensor is not None:
            elements, tensors = elements - tensor.numel(), tensors - 1
        if min(elements, tensors) < 0:
            raise ValueError(f"its config makes a model that is larger than its weights, of {size.elements} bytes")

    hooks = [register_module_parameter_registration_hook(count), register_module_buffer_registration_hook(count)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _files_of_index(path: Path) -> set[str]:
    match read_json(path):
        case {"weight_map": dict(places)} if all(map(_is_inside, places.values())):
            return set(places.values())
    raise UserError(f"{path} is damaged: its weight_map must name files beside it")


def _is_inside(name: Any) -> bool:
    return isinstance(name, str) and name not in ("", ".", "..") and PurePosixPath(name).name == name


def _size(path: Path) -> Size:
    """An element takes a byte at least."""
    size = path.stat().st_size
    if path.suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            return Size(size, len(file.keys()))
    if zipfile.is_zipfile(path):
        return Size(size, check_zip(path))
    return Size(size, size // _SMALLEST_ENTRY)


def _sum(sizes: Iterable[Size]) -> Size:
    every = list(sizes)
    return Size(sum(own.elements for own in every), sum(own.tensors for own in every))
