"""Encoders in files other than a saved folder: checkpoints of training, and those released with the paper.

The released files do not state the pooling and the head; their names do.
"""

import re
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from simcse_pl.models.adapters import without_name
from simcse_pl.models.settings import CHECKPOINT_KEY, HEAD_FILE, POOLING_FILE, EncoderSettings, EncoderSpec
from simcse_pl.models.sources import ADAPTER_FILE, ADAPTER_WEIGHTS, find_file, find_weights
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import read_torch_file, read_weights

_RELEASED = re.compile(r"(?:.*/)?(unsup|sup)-simcse-(?:bert|roberta)-(?:base|large)(?:-uncased)?/?")


def unpack_checkpoint(path: str, folder: Path) -> None:
    """Write the files of an encoder in a `.ckpt` file into a folder. Code in the file is never run."""
    with torch.device("cpu"):  # also where only the first rank loads weights (see speed/fsdp.py)
        content = read_torch_file(Path(path), mmap=True)  # the optimizer's state stays on disk
    if not isinstance(content, dict) or CHECKPOINT_KEY not in content:
        hint = "give the folder `encoder` of the run instead"
        raise UserError(f"{path} does not contain an encoder: another project or an older version wrote it; {hint}")
    for name, text in content[CHECKPOINT_KEY].items():
        (folder / Path(name).name).write_bytes(text.encode("latin-1"))  # never outside of the folder
    weights_file = ADAPTER_WEIGHTS if (folder / ADAPTER_FILE).exists() else "model.safetensors"
    for part, file in (("backbone", weights_file), ("projection", HEAD_FILE), ("pooling_layer", POOLING_FILE)):
        prefix = f"encoder.{part}."  # of SimCSEModule
        weights = {name.removeprefix(prefix): x for name, x in content["state_dict"].items() if name.startswith(prefix)}
        if file == ADAPTER_WEIGHTS:
            weights = {without_name(name): x for name, x in weights.items()}
        save_file({name: x.clone() for name, x in weights.items()}, folder / file, {"format": "pt"})


def read_released(source: str) -> EncoderSpec | None:
    """Read the parts of an encoder that was released with the paper; None for any other."""
    released = _RELEASED.fullmatch(source)
    if not released or not find_file(source, "config.json"):
        return None
    if released[1] == "unsup":
        return EncoderSpec(EncoderSettings("cls"))
    # its head is kept at test time, as BERT's pooler (section 6.3)
    head = {key.replace("dense.", "0."): weight for key, weight in read_pooler(find_weights(source)).items()}
    return EncoderSpec(EncoderSettings("cls", "mlp"), head)


def read_pooler(path: Path) -> dict[str, Tensor]:
    """Return a state dict for `PoolerOutput` from a file of weights. ALBERT's are in pooler, others in pooler.dense."""
    weights = read_weights(path)
    poolers = [name.rpartition("weight")[0] for name in weights if re.search(r"\bpooler\.(dense\.)?weight$", name)]
    if not poolers:
        raise UserError(f"{path} has no weights of a pooler: choose another pooling, such as cls")
    return {f"dense.{name}": weights[poolers[0] + name] for name in ("weight", "bias")}
