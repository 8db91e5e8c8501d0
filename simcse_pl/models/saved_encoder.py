"""The files of an encoder: a folder, and an entry of a Lightning checkpoint.

A folder is that of a Hugging Face model, with `simcse.json`, the weights of the head and a post-processing in addition.
The checkpoints released with the paper can be read as well. Their files do not state the pooling and the head; their
names do. A Lightning checkpoint is self-contained and can be moved anywhere.
"""

import json
import logging
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.adapters import (
    ADAPTER_WEIGHTS,
    MERGE_FIRST,
    has_adapter,
    read_adapter_config,
    write_adapter_config,
)
from simcse_pl.models.backbone import is_decoder, rebuild_backbone, rebuild_with_adapter
from simcse_pl.models.pooling import OfLayers
from simcse_pl.models.sentence_transformers_format import (
    MODULES_FILE,
    check_modules,
    read_sentence_transformers,
    write_modules,
)
from simcse_pl.models.settings import SETTINGS_FILE, EncoderSettings, EncoderSpec, parse_settings
from simcse_pl.models.sources import (
    ADAPTER_FILE,
    find_file,
    find_weights,
    load_config,
    load_tokenizer,
    quiet_transformers,
)
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import save_tokenizer
from simcse_pl.postprocessing.post_process import SETTINGS_FILE as POSTPROCESS_FILE
from simcse_pl.postprocessing.post_process import TENSORS_FILE
from simcse_pl.postprocessing.post_process import load as load_postprocess
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_write, read_json
from simcse_pl.utils.tensors import read_torch_file, read_weights
from simcse_pl.utils.types import Backbone

log = logging.getLogger(__name__)

CHECKPOINT_KEY = "simcse_pl.models.encoder"
HEAD_FILE = "head.safetensors"
_EITHER = ("config.json", "model.safetensors", ADAPTER_FILE, ADAPTER_WEIGHTS)  # a whole backbone, or an adapter
_RELEASED = re.compile(r"(?:.*/)?(unsup|sup)-simcse-(?:bert|roberta)-(?:base|large)(?:-uncased)?/?")


def write_saved(folder: str | Path, backbone: Backbone, templates: Templates, spec: EncoderSpec) -> None:
    """Write an encoder; see `SentenceEncoder.save_pretrained`."""
    with atomic_write(folder, last=SETTINGS_FILE) as new, quiet_transformers():
        backbone.save_pretrained(new)  # of an adapter, only its weights
        save_tokenizer(templates.tokenizer, new)
        if spec.head_weights:
            save_file(dict(spec.head_weights), new / HEAD_FILE)
        if spec.postprocess is not None:
            spec.postprocess.save(new)
        try:
            check_modules(spec.settings, templates, backbone.config.num_hidden_layers)
            _check_base(backbone)
        except UserError as error:  # must not cost the results of training
            log.warning("%s", error)
        else:
            write_modules(spec, templates, backbone.config, new)
        saved = asdict(spec.settings) | ({"base": _base_settings(backbone)} if has_adapter(backbone) else {})
        (new / SETTINGS_FILE).write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")
        written = {path.name for path in new.iterdir()}
    for file in (HEAD_FILE, MODULES_FILE, POSTPROCESS_FILE, TENSORS_FILE, *_EITHER):
        if file not in written:  # it belongs to an encoder that was saved here before
            (Path(folder) / file).unlink(missing_ok=True)


def read_spec(source: str, pooling: str | OfLayers | None = None, pooler: str | None = None) -> EncoderSpec:
    """Read the parts of an encoder beside its backbone and tokenizer; an empty EncoderSpec for a plain checkpoint.

    Args:
        source: a folder or hub repository of this project, sentence-transformers or the official code.
        pooling: the pooling that replaces the saved one. Of a folder of sentence-transformers with another pooling,
            only the transformer is used: its head was trained on other vectors.
        pooler: if given, the source is read as a checkpoint of the official code.

    Raises:
        UserError: a file is damaged or missing, or an unknown pooler.
    """
    if pooler is not None:
        return _read_official(source, pooler)
    if (spec := _read_saved(source)) is not None:
        return spec
    try:
        spec = read_sentence_transformers(source)
    except UserError:
        if pooling is None:
            raise
        return EncoderSpec()  # of modules that are not supported, the transformer can be loaded
    released = _RELEASED.fullmatch(source)
    if spec is None and released and find_file(source, "config.json"):
        spec = _read_official(source, "cls_before_pooler" if released[1] == "unsup" else "cls")
    if spec is None or pooling in (None, spec.settings.pooling):
        return spec or EncoderSpec()
    if spec.head_weights:
        log.warning("pooling=%s: the head of %s was trained with another pooling and is left out", pooling, source)
    return EncoderSpec(subfolder=spec.subfolder)


def _read_official(source: str, pooler: str) -> EncoderSpec:
    """Read a checkpoint of the official code, given its option: `cls` (with BERT's pooler) or `cls_before_pooler`.

    Unsupervised models drop the projection head at test time. Supervised models keep it, and store it as
    BERT's pooler (section 6.3 and Table 6 of the paper).
    """
    if pooler == "cls_before_pooler":
        return EncoderSpec(EncoderSettings("cls"))
    if pooler != "cls":
        raise UserError(f"pooler={pooler}: choose cls or cls_before_pooler")
    path = find_weights(source)
    with reraise_as(f"{path} has no projection head"):
        weights = {name.rpartition("pooler.")[2]: weight for name, weight in read_weights(path).items()}
        head = {"0.weight": weights["dense.weight"], "0.bias": weights["dense.bias"]}
    return EncoderSpec(EncoderSettings("cls", "mlp"), head)


def _read_saved(source: str) -> EncoderSpec | None:
    path = find_file(source, SETTINGS_FILE)
    if path is None:
        return None
    settings = parse_settings(read_json(path), str(path))
    weights, postprocess = {}, None
    if settings.head != "none":
        head = find_file(source, HEAD_FILE)
        if head is None:
            raise UserError(f"{path} names a projection head, but {HEAD_FILE} is missing")
        weights = read_weights(head)
    if fitted := find_file(source, POSTPROCESS_FILE):
        find_file(source, TENSORS_FILE)  # a hub repository's files are downloaded into one folder
        postprocess = load_postprocess(fitted.parent)
    match read_json(path).get("base", {}):
        case {"num_layers": int(layers), "bidirectional": None | bool() as bidirectional}:
            return EncoderSpec(settings, weights, postprocess, num_layers=layers, bidirectional=bidirectional)
        case {}:
            return EncoderSpec(settings, weights, postprocess)
        case _:
            raise UserError(f"{path} is damaged: base must have num_layers and bidirectional")


def _base_settings(backbone: Backbone) -> dict[str, Any]:
    """Return the options of `load_backbone` that load the base model of an adapter as it is."""
    config = backbone.config
    causal = getattr(config, "is_causal", None) if is_decoder(config) else None
    return {"num_layers": config.num_hidden_layers, "bidirectional": None if causal is None else not causal}


def _check_base(backbone: Backbone) -> None:
    """Raise UserError if transformers, and so sentence-transformers, would load an adapter or its base otherwise."""
    if not has_adapter(backbone):
        return
    config = load_config(str(backbone.name_or_path))
    changed = {
        "num_layers": config.num_hidden_layers != backbone.config.num_hidden_layers,
        "bidirectional": getattr(config, "is_causal", True) != getattr(backbone.config, "is_causal", True),
        "adapter.use_dora": any(getattr(config, "use_dora", False) for config in backbone.peft_config.values()),
    }
    for option in (option for option, on in changed.items() if on):
        raise UserError(f"{option}: sentence-transformers loads no such adapter, only simcse_pl loads it")


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
        save_tokenizer(tokenizer, folder)
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
