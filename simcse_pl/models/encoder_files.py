"""What is saved of an encoder beside its backbone and tokenizer: `simcse.json`, and the weights of its head."""

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

from simcse_pl.postprocessing import saved as saved_postprocess
from simcse_pl.postprocessing.post_process import SETTINGS_FILE as POSTPROCESS_FILE
from simcse_pl.postprocessing.post_process import TENSORS_FILE, PostProcess
from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.files import read_json

SETTINGS_FILE = "simcse.json"
HEAD_FILE = "head.safetensors"
# "owner/name" for an implementation, or a dict of them by sub-config, in the text that json.dumps writes
_HUB_KERNEL = re.compile(r'"(\w*_implementation)": (?:"[^"]*/|\{[^}]*/)')


@dataclass(frozen=True)
class EncoderSettings:
    """The arguments of SentenceEncoder that are saved with it; a plain checkpoint says nothing."""

    pooling: str | None = None
    head: str = "none"
    max_length: int | None = None
    normalize: bool = False


@dataclass(frozen=True)
class EncoderSpec:
    """What a source says of an encoder.

    Args:
        settings: of the encoder.
        head_weights: the state dict of its projection head; none where it has no head.
        postprocess: of its vectors.
        subfolder: where in the source the backbone and the tokenizer are.
        lower_case: whether sentences are read in small letters.
    """

    settings: EncoderSettings = field(default_factory=EncoderSettings)
    head_weights: Mapping[str, Tensor] = field(default_factory=dict)
    postprocess: PostProcess | None = None
    subfolder: str = ""
    lower_case: bool = False


def read_saved(source: str) -> EncoderSpec | None:
    """What `SentenceEncoder.save_pretrained` wrote; None where it did not.

    Args:
        source: a folder or a hub repository.

    Raises:
        UserError: a file that is damaged or missing.
    """
    path = find_file(source, SETTINGS_FILE)
    if path is None:
        return None
    settings = parse_settings(read_json(path), str(path))
    postprocess = _read_postprocess(source)
    if settings.head == "none":
        return EncoderSpec(settings, postprocess=postprocess)
    head = find_file(source, HEAD_FILE)
    if head is None:
        raise UserError(f"{source} says that it has a projection head, and {HEAD_FILE} is missing")
    return EncoderSpec(settings, read_weights(head), postprocess)


def _read_postprocess(source: str) -> PostProcess | None:
    path = find_file(source, POSTPROCESS_FILE)
    if path is None:
        return None
    find_file(source, TENSORS_FILE)  # from a hub it comes into the same folder
    return saved_postprocess.load(path.parent)


def parse_settings(value: Any, where: str) -> EncoderSettings:
    """EncoderSettings from what `dataclasses.asdict` made of them; `normalize` came later than the others.

    Raises:
        UserError: they are not there, or not of their types.
    """
    match value:
        case {"pooling": str(pooling), "head": str(head), "max_length": int(max_length)}:
            match value.get("normalize", False):
                case bool(normalize):
                    return EncoderSettings(pooling, head, max_length, normalize)
    raise UserError(f"{where} is damaged: it must hold pooling, head, max_length and normalize")


def find_file(source: str, file: str) -> Path | None:
    """A file of a model folder or hub repository; None where it has no such file."""
    if Path(source).is_dir():
        return path if (path := Path(source) / file).is_file() else None
    return hub.find(source, file)


def find_weights(source: str, folder: str = "") -> Path | None:
    """The weights in a folder or repository, or in one folder of it; None where there are none."""
    names = (str(PurePosixPath(folder, name)) for name in ("model.safetensors", "pytorch_model.bin"))
    return next(filter(None, (find_file(source, name) for name in names)), None)


def check_config(path: Path) -> None:
    """Check a model's config.json before transformers reads it.

    Raises:
        UserError: the file is not a JSON object, or names attention code in a hub repository.
    """
    config = read_json(path)
    if not isinstance(config, dict):
        raise UserError(f"{path} is damaged: it must be a JSON object")
    if kernel := _HUB_KERNEL.search(json.dumps(config)):
        raise UserError(f"{path}: {kernel[1]} names code in a hub repository, which is never run: remove this entry")


def load_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of such a file; no code in it is run, and what is wrong with it is told by whatever reads it."""
    weights: dict[str, Tensor] = (
        load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    )
    return weights


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        UserError: it is none, or damaged.
    """
    try:
        return load_file(path)
    except Exception as error:  # safetensors has its own, and the system's
        raise UserError(f"{path} is damaged: {first_line(error)}") from error


def hash_tensors(tensors: Mapping[str, Tensor], *settings: Any) -> str:
    """Return a hash of tensors by name and of settings, in hexadecimal digits."""
    digest = hashlib.sha256(repr(settings).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
