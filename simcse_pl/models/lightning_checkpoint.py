"""The encoder in a Lightning checkpoint. The file is self-contained and can be moved anywhere."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.adapters import MERGE_FIRST, read_adapter_config, write_adapter_config
from simcse_pl.models.backbone import rebuild_backbone, rebuild_with_adapter
from simcse_pl.models.backbone_type import Backbone
from simcse_pl.models.encoder_files import EncoderSettings, EncoderSpec, parse_settings, read_torch_file
from simcse_pl.models.sources import load_config, load_tokenizer, quiet_transformers
from simcse_pl.utils.errors import UserError, reraise_as

CHECKPOINT_KEY = "simcse_pl.models.encoder"


def checkpoint_entry(
    backbone: Backbone, tokenizer: PreTrainedTokenizerBase, settings: EncoderSettings
) -> dict[str, Any]:
    """Return the entry `CHECKPOINT_KEY` of a checkpoint: the encoder without its weights.

    It has the `settings`, and the `files` of config, adapter config and tokenizer by name. Files are stored as strings
    in latin-1, because torch's safe reader rejects empty bytes.
    """
    with tempfile.TemporaryDirectory() as name, quiet_transformers():
        folder = Path(name)
        backbone.config.save_pretrained(folder)
        write_adapter_config(backbone, folder)
        tokenizer.save_pretrained(folder)
        files = {path.name: path.read_bytes().decode("latin-1") for path in sorted(folder.iterdir())}
    return {"settings": asdict(settings), "files": files}


def read_checkpoint(
    path: str | Path, num_layers: int | None = None
) -> tuple[Backbone, PreTrainedTokenizerBase, EncoderSpec]:
    """Read an encoder's backbone, tokenizer and other parts from a `.ckpt` file. Code in the file is never run.

    `num_layers` keeps only the first layers of the backbone; None keeps all.

    Raises:
        UserError: the file does not exist, is damaged or does not contain an encoder, or `num_layers` is out of range.
    """
    content = read_torch_file(Path(path), mmap=True)  # the optimizer's state stays on disk
    if not isinstance(content, dict) or CHECKPOINT_KEY not in content:
        hint = "give the folder `encoder` of the run instead"
        raise UserError(f"{path} does not contain an encoder: another project or an older version wrote it; {hint}")
    damaged = reraise_as(f"{path} is damaged", users_too=True)
    with tempfile.TemporaryDirectory() as temporary, quiet_transformers(), damaged:
        folder = Path(temporary)
        entry, weights = content[CHECKPOINT_KEY], content["state_dict"]
        settings = parse_settings(entry["settings"], CHECKPOINT_KEY)
        backbone_weights, head_weights = (_part_of(weights, part) for part in ("backbone", "projection"))
        for name, text in entry["files"].items():
            (folder / Path(name).name).write_bytes(text.encode("latin-1"))  # never outside of the folder
        config, tokenizer = load_config(str(folder)), load_tokenizer(str(folder))
        adapter = read_adapter_config(folder)
    if adapter is None:
        backbone = rebuild_backbone(str(path), config, backbone_weights, num_layers)
    elif num_layers is not None:
        raise UserError(f"num_layers={num_layers}: {path} {MERGE_FIRST}")
    else:
        backbone = rebuild_with_adapter(str(path), config, adapter, backbone_weights)
    return backbone, tokenizer, EncoderSpec(settings, head_weights)


def _part_of(weights: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Return the state dict of one part of the encoder."""
    prefix = f"encoder.{part}."  # SimCSEModule.encoder
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
