"""The files of an encoder: a folder, and an entry of a Lightning checkpoint.

A folder is that of a Hugging Face model, with `simcse.json`, the weights of the head and a post-processing in addition.
The checkpoints released with the paper can be read as well. Their files do not state the pooling and the head; their
names do. A Lightning checkpoint is self-contained and can be moved anywhere.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter
from safetensors.torch import save_file
from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.adapters import ADAPTER_WEIGHTS, has_adapter, without_name
from simcse_pl.models.backbone import is_decoder, load_backbone, longest_input
from simcse_pl.models.heads import pretrained_transform
from simcse_pl.models.pooling import CHOICES, is_dotted, name_of
from simcse_pl.models.sentence_transformers_format import (
    MODULES_FILE,
    read_sentence_transformers,
    unsupported_option,
    write_modules,
)
from simcse_pl.models.settings import SETTINGS_FILE, EncoderSettings, EncoderSpec
from simcse_pl.models.sources import ADAPTER_FILE, find_file, find_weights, load_tokenizer, quiet_transformers, resolve
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import save_tokenizer
from simcse_pl.postprocessing.post_process import SETTINGS_FILE as POSTPROCESS_FILE
from simcse_pl.postprocessing.post_process import TENSORS_FILE
from simcse_pl.postprocessing.post_process import load as load_postprocess
from simcse_pl.utils.errors import UserError, prefixed, reraise_as
from simcse_pl.utils.files import atomic_write, read_json, temporary_folder, write_json
from simcse_pl.utils.tensors import read_torch_file, read_weights
from simcse_pl.utils.types import Backbone

log = logging.getLogger(__name__)

Encoder = TypeVar("Encoder")
CHECKPOINT_KEY = "simcse_pl.models.encoder"
HEAD_FILE, POOLING_FILE = "head.safetensors", "pooling.safetensors"
_EITHER = ("config.json", "model.safetensors", ADAPTER_FILE, ADAPTER_WEIGHTS)  # a whole backbone, or an adapter
_REPLACED = (HEAD_FILE, POOLING_FILE, MODULES_FILE, POSTPROCESS_FILE, TENSORS_FILE, *_EITHER)
_RELEASED = re.compile(r"(?:.*/)?(unsup|sup)-simcse-(?:bert|roberta)-(?:base|large)(?:-uncased)?/?")


def write_saved(folder: str | Path, backbone: Backbone, templates: Templates, spec: EncoderSpec) -> None:
    """Write an encoder; see `SentenceEncoder.save_pretrained`."""
    with atomic_write(folder, last=SETTINGS_FILE, stale=_REPLACED) as new, quiet_transformers():
        backbone.save_pretrained(new)  # of an adapter, only its weights
        save_tokenizer(templates.tokenizer, new)
        for file, weights in ((HEAD_FILE, spec.head_weights), (POOLING_FILE, spec.pooling_weights)):
            if weights:
                save_file(dict(weights), new / file)
        if spec.postprocess is not None:
            spec.postprocess.save(new)
        if option := unsupported_option(spec.settings, templates, backbone, spec.postprocess):
            log.warning("%s: sentence-transformers has no such module, only simcse_pl loads it", option)
        else:
            write_modules(spec, templates, backbone.config, new)
        _write_settings(new, spec.settings, backbone)


def _write_settings(folder: Path, settings: EncoderSettings, backbone: Backbone) -> None:
    saved = asdict(settings)
    if has_adapter(backbone):  # the options of `load_backbone` that load its base model as it is
        causal = getattr(backbone.config, "is_causal", None) if is_decoder(backbone.config) else None
        bidirectional = None if causal is None else not causal
        saved["base"] = {"num_layers": backbone.config.num_hidden_layers, "bidirectional": bidirectional}
    write_json(folder / SETTINGS_FILE, saved)


def read_spec(name: str, given: Mapping[str, Any]) -> EncoderSpec:
    """Read the parts of an encoder beside its backbone and tokenizer; an empty EncoderSpec for a plain checkpoint.

    Args:
        name: a folder or hub repository of this project, sentence-transformers or the official code, or package:NAME.
        given: the settings that replace the saved ones. Of a folder of sentence-transformers with another pooling than
            the given one, only the transformer is used: its head was trained on other vectors.
    """
    source = resolve(name)
    if (spec := _read_saved(source)) is not None:
        return spec
    pooling = given.get("pooling")
    try:
        spec = read_sentence_transformers(source)
    except UserError:
        if pooling is None:
            raise
        what = "has modules that are not supported; only its transformer is loaded"
        log.warning("pooling=%s: %s %s", name_of(pooling), name, what)
        return EncoderSpec()
    released = _RELEASED.fullmatch(source)
    if spec is None and released and find_file(source, "config.json"):
        spec = EncoderSpec(EncoderSettings("cls"))
        if released[1] == "sup":  # its head is kept at test time, as BERT's pooler (section 6.3)
            head = {key.replace("dense.", "0."): weight for key, weight in _read_pooler(find_weights(source)).items()}
            spec = EncoderSpec(EncoderSettings("cls", "mlp"), head)
    if spec is None or pooling in (None, spec.settings.pooling):
        return spec or EncoderSpec()
    plain = vars(EncoderSettings())
    saved = {name: value for name, value in vars(spec.settings).items() if name not in given and value != plain[name]}
    if saved:
        kept = f"{name} has pooling={spec.settings.pooling}, so only its transformer is loaded"
        without = ", ".join(f"{name}={value}" for name, value in saved.items())
        log.warning("pooling=%s: %s, without %s", name_of(pooling), kept, without)
    return EncoderSpec(subfolder=spec.subfolder)


def _read_pooler(path: Path) -> dict[str, Tensor]:
    """Return a state dict for `PoolerOutput` from a file of weights. ALBERT's are in pooler, others in pooler.dense."""
    weights = read_weights(path)
    poolers = [name.rpartition("weight")[0] for name in weights if re.search(r"\bpooler\.(dense\.)?weight$", name)]
    if not poolers:
        raise UserError(f"{path} has no weights of a pooler: choose another pooling, such as cls")
    return {f"dense.{name}": weights[poolers[0] + name] for name in ("weight", "bias")}


def _read_saved(source: str) -> EncoderSpec | None:
    path = find_file(source, SETTINGS_FILE)
    if path is None:
        return None
    content = read_json(path)
    with reraise_as(f"{path} is damaged"):
        settings = TypeAdapter(EncoderSettings).validate_python(content)
    files = [find_file(source, name) for name in (HEAD_FILE, POOLING_FILE)]
    head, pooling = (read_weights(file) if file else {} for file in files)
    postprocess = None
    if fitted := find_file(source, POSTPROCESS_FILE):
        find_file(source, TENSORS_FILE)  # a hub repository's files are downloaded into one folder
        postprocess = load_postprocess(fitted.parent)
    head_weights = None if settings.head == "none" else head
    base = content.get("base", {})  # no other part of it is read: the folder may be downloaded
    changes = {name: base.get(name) for name in ("num_layers", "bidirectional")}
    return EncoderSpec(settings, head_weights, pooling, postprocess, **changes)


def checkpoint_entry(
    backbone: Backbone, tokenizer: PreTrainedTokenizerBase, settings: EncoderSettings
) -> dict[str, Any]:
    """Return the entry `CHECKPOINT_KEY` of a checkpoint: the files of the encoder by name, without its weights.

    Files are stored as strings in latin-1, because torch's safe reader rejects empty bytes.
    """
    with temporary_folder() as folder, quiet_transformers():
        if has_adapter(backbone):
            next(iter(backbone.peft_config.values())).save_pretrained(str(folder))
        else:
            backbone.config.save_pretrained(folder)
        save_tokenizer(tokenizer, folder)
        _write_settings(folder, settings, backbone)
        return {path.name: path.read_bytes().decode("latin-1") for path in sorted(folder.iterdir())}


def _unpack_checkpoint(path: str, folder: Path) -> None:
    """Write the files of an encoder in a `.ckpt` file into a folder. Code in the file is never run."""
    with torch.device("cpu"):  # also where only the first rank loads weights (see speed/fsdp.py)
        content = read_torch_file(Path(path), mmap=True)  # the optimizer's state stays on disk
    if not isinstance(content, dict) or CHECKPOINT_KEY not in content:
        hint = "give the folder `encoder` of the run instead"
        raise UserError(f"{path} does not contain an encoder: another project or an older version wrote it; {hint}")
    for name, text in content[CHECKPOINT_KEY].items():
        (folder / Path(name).name).write_bytes(text.encode("latin-1"))  # never outside of the folder
    of_backbone = ADAPTER_WEIGHTS if (folder / ADAPTER_FILE).exists() else "model.safetensors"
    for part, file in (("backbone", of_backbone), ("projection", HEAD_FILE), ("pooling_layer", POOLING_FILE)):
        prefix = f"encoder.{part}."  # of SimCSEModule
        weights = {name.removeprefix(prefix): x for name, x in content["state_dict"].items() if name.startswith(prefix)}
        if file == ADAPTER_WEIGHTS:
            weights = {without_name(name): x for name, x in weights.items()}
        save_file({name: x.clone() for name, x in weights.items()}, folder / file, {"format": "pt"})


def load_saved(
    make: Callable[..., Encoder], name: str, given: Mapping[str, Any], base: str | None, backbone: dict[str, Any]
) -> Encoder:
    """Build an encoder from what is saved as `name`, in evaluation mode; see `SentenceEncoder.from_pretrained`.

    Args:
        make: the encoder's class.
        given: replace the saved settings if they are not None.
        base: the model that has the config and the tokenizer, if `name` is a state dict.
        backbone: the options of `load_backbone`.
    """
    if base is None and name.endswith(".ckpt") and not Path(name).is_dir():
        with prefixed(name), reraise_as("damaged"), temporary_folder() as folder:
            _unpack_checkpoint(name, folder)
            return load_saved(make, str(folder), given, None, backbone)
    given = {option: value for option, value in given.items() if value is not None}
    model, tokenizer, spec = _load_parts(name, given, base, backbone)
    settings = vars(spec.settings) | given
    if not settings["pooling"]:
        raise UserError(f"{name} does not say how it is pooled: add pooling=, one of {CHOICES}")
    if "pooling" not in given and is_dotted(settings["pooling"]):
        raise UserError(f"{name} names code that is imported only if you ask for it: add pooling={settings['pooling']}")
    longest = longest_input(model)
    if settings["max_length"] and longest and "max_length" not in given:  # a saved length may exceed the limit
        how = {"as_text": settings["template_as_text"], "prompts": settings["prompts"]}
        longest = Templates(tokenizer, settings["template"], **how).longest_sentence(longest)
        settings["max_length"] = min(settings["max_length"], longest)
    with reraise_as(f"{name} cannot encode"):
        encoder: Any = make(model, tokenizer, **settings, postprocess=spec.postprocess)
    with reraise_as(f"{name}: the weights of its head or pooling do not fit"):
        if encoder.projection is not None and spec.head_weights is not None:
            encoder.projection.load_state_dict(spec.head_weights)
        if encoder.pooling in (spec.settings.pooling, "pooler") and spec.pooling_weights is not None:
            encoder.pooling_layer.load_state_dict(spec.pooling_weights)
    built: Encoder = encoder.eval()
    return built


def _load_parts(
    name: str, given: Mapping[str, Any], base: str | None, backbone: dict[str, Any]
) -> tuple[Backbone, PreTrainedTokenizerBase, EncoderSpec]:
    """Return the backbone, the tokenizer and the other parts of an encoder; see `load_saved`."""
    file, source = Path(name).is_file(), resolve(base or name)
    if file and base is None:
        raise UserError(f"{name} has weights alone: add backbone=, the model whose config and tokenizer belong to them")
    spec = EncoderSpec() if base else read_spec(name, given)
    for option in ("num_layers", "bidirectional"):
        if backbone.get(option) is None:
            backbone[option] = getattr(spec, option)
    model = load_backbone(base or name, subfolder=spec.subfolder, weights=name if base else None, **backbone)
    tokenizer = load_tokenizer(base or name, spec.subfolder)
    if not backbone.get("pretrained", True):
        return model, tokenizer, EncoderSpec(spec.settings)
    if given.get("head") == "transform" and spec.settings.head == "none":
        spec = replace(spec, head_weights=pretrained_transform(base or name) or None)
    if given.get("pooling") == "pooler" != spec.settings.pooling:
        spec = replace(spec, pooling_weights=_read_pooler(Path(name) if file else find_weights(source, spec.subfolder)))
    return model, tokenizer, spec
