"""The encoder in a Lightning checkpoint. The file is self-contained and can be moved anywhere."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.backbone import load_tokenizer, rebuild_backbone
from simcse_pl.models.encoder_files import EncoderSettings, EncoderSpec, check_config, parse_settings, read_torch_file
from simcse_pl.models.transformers_loading import quiet_transformers
from simcse_pl.utils.errors import UserError, reraise_as

CHECKPOINT_KEY = "simcse_pl.models.encoder"


def describe(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, settings: EncoderSettings) -> dict[str, Any]:
    """Return the entry `CHECKPOINT_KEY` of a checkpoint: all of its encoder but the weights.

    Files are stored as strings of latin-1, because torch's safe reader rejects empty bytes.

    Args:
        config: the backbone's config.
        tokenizer: the encoder's tokenizer.
        settings: the encoder's settings.

    Returns:
        `settings`, and the `files` of config and tokenizer by name.
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
    """Read the encoder of a checkpoint. Code in the file is never run.

    Args:
        path: the `.ckpt` file.
        num_layers: keep only the first layers of the backbone; None keeps all.

    Returns:
        The backbone, the tokenizer and the other parts of the encoder.

    Raises:
        UserError: the file does not exist, is damaged or holds no encoder, or `num_layers` is out of range.
    """
    content = read_torch_file(Path(path), mmap=True)  # the optimizer's state stays on disk
    if not isinstance(content, dict) or CHECKPOINT_KEY not in content:
        raise UserError(
            f"{path} holds no encoder: it is of another project or of an older version; "
            "give the folder `encoder` of the run instead"
        )
    damaged = reraise_as(f"{path} is damaged", users_too=True)
    with tempfile.TemporaryDirectory() as temporary, quiet_transformers(), damaged:
        folder = Path(temporary)
        entry, weights = content[CHECKPOINT_KEY], content["state_dict"]
        settings = parse_settings(entry["settings"], CHECKPOINT_KEY)
        backbone_weights, head_weights = _with_prefix("backbone.", weights), _with_prefix("projection.", weights)
        for name, text in entry["files"].items():
            (folder / Path(name).name).write_bytes(text.encode("latin-1"))  # never outside of the folder
        check_config(folder / "config.json")
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        tokenizer = load_tokenizer(str(folder))
    backbone = rebuild_backbone(str(path), config, backbone_weights, num_layers)
    return backbone, tokenizer, EncoderSpec(settings, head_weights)


def _with_prefix(part: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of one part of the encoder by their names in it."""
    prefix = f"encoder.{part}"  # SimCSEModule.encoder
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
