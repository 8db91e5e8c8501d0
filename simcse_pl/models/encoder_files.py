"""Read the files of a model folder or hub repository, and the settings and parts that an encoder adds to a backbone."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import read_json

SETTINGS_FILE = "simcse.json"
# "owner/name" as an implementation, or a dict of them by sub-config, as json.dumps writes them
_HUB_KERNEL = re.compile(r'"(\w*_implementation)": (?:"[^"]*/|\{[^}]*/)')


@dataclass(frozen=True)
class EncoderSettings:
    """The arguments of SentenceEncoder that are saved with it. A plain checkpoint has none of them."""

    pooling: str | None = None
    head: str = "none"
    max_length: int | None = None
    normalize: bool = False
    template: str | list[str] | None = None
    template_bias: str = "none"
    final_period: bool = False
    truncate_dim: int | None = None


@dataclass(frozen=True)
class EncoderSpec:
    """The parts of an encoder that its backbone and tokenizer do not contain.

    Args:
        settings: the encoder's settings.
        head_weights: the state dict of its projection head; empty without a head.
        postprocess: its post-processing.
        subfolder: the folder within the source that contains the backbone and the tokenizer.
        num_layers, bidirectional: how the base model of an adapter was changed; None without an adapter.
    """

    settings: EncoderSettings = field(default_factory=EncoderSettings)
    head_weights: Mapping[str, Tensor] = field(default_factory=dict)
    postprocess: PostProcess | None = None
    subfolder: str = ""
    num_layers: int | None = None
    bidirectional: bool | None = None


def parse_settings(value: Any, where: str) -> EncoderSettings:
    """Return EncoderSettings from a dict of their values. Files of older versions lack those after max_length.

    Raises:
        UserError: pooling, head or max_length is missing, or a value has another type.
    """
    newer = {"normalize": False, "template": None, "template_bias": "none", "final_period": False, "truncate_dim": None}
    match newer | value if isinstance(value, dict) else None:
        case {
            "pooling": str(pooling),
            "head": str(head),
            "max_length": int(length),
            "normalize": bool(normalize),
            "template": None | str() | [*_] as template,
            "template_bias": str(bias),
            "final_period": bool(period),
            "truncate_dim": None | int() as dim,
        }:
            return EncoderSettings(pooling, head, length, normalize, template, bias, period, dim)
    raise UserError(f"{where} is damaged: it must have pooling, head and max_length, and values of the right types")


def find_file(source: str, file: str) -> Path | None:
    """Return a file of a model folder or hub repository; None if it does not exist."""
    if Path(source).is_dir():
        return path if (path := Path(source) / file).is_file() else None
    return hub.find(source, file)


def find_weights(source: str, folder: str = "") -> Path:
    """Return the file of weights in a folder of a model folder or hub repository; raise UserError if there is none."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if path := find_file(source, str(PurePosixPath(folder, name))):
            return path
    raise UserError(f"{source}: the weights {PurePosixPath(folder, 'model.safetensors')} are missing")


def check_config(path: Path) -> None:
    """Raise UserError if a model's config.json is not a JSON object, or names attention code in a hub repository."""
    config = read_json(path)
    if not isinstance(config, dict):
        raise UserError(f"{path} is damaged: it must be a JSON object")
    if kernel := _HUB_KERNEL.search(json.dumps(config)):
        raise UserError(f"{path}: {kernel[1]} names code in a hub repository, which is never run: remove this entry")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file or of a torch file; raise UserError if it is damaged."""
    with reraise_as(f"{path} is damaged"):
        return load_file(path) if path.suffix == ".safetensors" else dict(read_torch_file(path))


def read_torch_file(path: Path, mmap: bool = False) -> Any:
    """Read a file of torch.save. Code in it is never run. With `mmap`, tensors stay on the disk until they are used.

    Raises:
        UserError: the file does not exist, is damaged, or contains more than tensors and plain values.
    """
    if not path.is_file():
        raise UserError(f"no file {path}")
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # torch's own message explains how to run the code in a file
        content = "more than tensors and plain values, which is not loaded"
        raise UserError(f"{path} is not a checkpoint, is damaged, or contains {content}") from error


def hash_tensors(tensors: Mapping[str, Tensor], *settings: Any) -> str:
    """Return a hash of tensors by name and of settings, in hexadecimal digits."""
    digest = hashlib.sha256(repr(settings).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
