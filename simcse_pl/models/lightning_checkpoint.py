"""The encoder in a checkpoint of Lightning: all that rebuilds it, so that the file can be moved anywhere."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.backbone import load_tokenizer, quiet_transformers, rebuild_backbone
from simcse_pl.models.encoder_files import EncoderSettings, EncoderSpec, check_config, parse_settings
from simcse_pl.utils.errors import UserError, first_line, reraise_as

CHECKPOINT_KEY = "simcse_pl.models.encoder"
_PREFIX = "encoder."  # SimCSEModule.encoder


def describe(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, settings: EncoderSettings) -> dict[str, Any]:
    """What a checkpoint's entry `CHECKPOINT_KEY` says of its encoder, beside the weights.

    A file's bytes stand as the characters of latin-1: torch's safe reader refuses empty bytes, and a tokenizer's file
    need not be text.

    Args:
        config: the backbone's.
        tokenizer: the encoder's.
        settings: the encoder's.

    Returns:
        `settings`, and the `files` of config and tokenizer by their names.
    """
    with tempfile.TemporaryDirectory() as name, quiet_transformers():
        folder = Path(name)
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        files = {path.name: path.read_bytes().decode("latin-1") for path in sorted(folder.iterdir())}
    return {"settings": asdict(settings), "files": files}


def read_checkpoint(
    path: str | Path, num_layers: int | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, EncoderSpec]:
    """The encoder of a checkpoint; no code that the file may hold is run.

    Args:
        path: the `.ckpt` file.
        num_layers: keep the backbone's first layers only; all of them where None.

    Returns:
        The backbone, the tokenizer, and what the file says of the encoder beside them.

    Raises:
        UserError: no such file, one that is damaged or holds no encoder, or more layers than there are.
    """
    content = load(path)
    if not isinstance(content, dict) or CHECKPOINT_KEY not in content:
        raise UserError(
            f"{path} holds no encoder: it is of another project or of an older version; "
            "give the folder `encoder` of the run instead"
        )
    match content.get("state_dict"), content[CHECKPOINT_KEY]:
        case dict(weights), {"settings": settings, "files": dict(files)} if all(
            map(_is_plain_file, files.items())
        ) and all(map(_is_weight, weights.items())):
            pass
        case _:
            raise UserError(f"{path} is damaged: it must hold state_dict, and {CHECKPOINT_KEY} with settings and files")
    config, tokenizer = _read_files(files, path)
    backbone = rebuild_backbone(str(path), config, _under("backbone.", weights), num_layers)
    return backbone, tokenizer, EncoderSpec(parse_settings(settings, str(path)), _under("projection.", weights))


def load(path: str | Path) -> Any:
    """What a checkpoint holds; no code that the file may hold is run.

    Raises:
        UserError: no such file, or a damaged one.
    """
    if not Path(path).is_file():
        raise UserError(f"no file {path}")
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)  # the optimizer's state stays on disk
    except OSError as error:
        raise UserError(f"cannot read {path}: {first_line(error)}") from error
    except Exception as error:  # torch has many, and the longest says how to run a file's code
        raise UserError(
            f"{path} is no checkpoint, or damaged, or holds more than tensors and plain values, which is not loaded"
        ) from error


def _is_plain_file(item: tuple[Any, Any]) -> bool:
    """A name without folders, and text of latin-1."""
    name, text = item
    if not isinstance(name, str) or not isinstance(text, str):
        return False
    return name not in ("", "..") and Path(name).name == name and all(ord(character) < 256 for character in text)


def _is_weight(item: tuple[Any, Any]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], Tensor)


def _read_files(files: Mapping[str, str], path: str | Path) -> tuple[PreTrainedConfig, PreTrainedTokenizerBase]:
    damaged = reraise_as(f"{path} is damaged: its config or tokenizer", users_too=True)
    with tempfile.TemporaryDirectory() as temporary, quiet_transformers(), damaged:
        folder = Path(temporary)
        for name, text in files.items():
            (folder / name).write_bytes(text.encode("latin-1"))
        check_config(folder / "config.json")
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return config, load_tokenizer(str(folder))


def _under(part: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of one part of the encoder, by their names in it."""
    prefix = _PREFIX + part
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
