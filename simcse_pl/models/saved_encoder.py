"""The files of an encoder: a folder, and an entry of a Lightning checkpoint.

A folder is that of a Hugging Face model, with `simcse.json`, the weights of the head and a post-processing in addition.
A Lightning checkpoint is self-contained and can be moved anywhere.
"""

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from safetensors.torch import save_file
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.backbone import has_adapter, is_decoder, load_backbone, longest_input
from simcse_pl.models.heads import is_kept
from simcse_pl.models.pooling import CHOICES, is_dotted, name_of
from simcse_pl.models.sentence_transformers_format import (
    MODEL_FILE,
    MODULES_FILE,
    read_object,
    read_sentence_transformers,
    refuse_other_libraries,
    unsupported_option,
    write_modules,
)
from simcse_pl.models.settings import HEAD_FILE, POOLING_FILE, SETTINGS_FILE, EncoderSettings, EncoderSpec
from simcse_pl.models.sources import (
    ADAPTER_FILE,
    ADAPTER_WEIGHTS,
    WHOLE,
    find_file,
    find_weights,
    load_tokenizer,
    quiet_transformers,
    resolve,
)
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import save_tokenizer
from simcse_pl.postprocessing.post_process import POSTPROCESS_FILES
from simcse_pl.postprocessing.post_process import load as load_postprocess
from simcse_pl.utils.errors import UserError, prefixed, reraise_as
from simcse_pl.utils.files import atomic_write, read_json, temporary_folder, write_json
from simcse_pl.utils.tensors import read_weights
from simcse_pl.utils.types import Backbone

log = logging.getLogger(__name__)

_EITHER = ("config.json", *WHOLE, ADAPTER_FILE, ADAPTER_WEIGHTS)  # a whole backbone, or an adapter
TRAINING_FILE = "training.json"  # how the weights were trained (see tools/model_card.py); other weights remove it
_REPLACED = (HEAD_FILE, POOLING_FILE, MODULES_FILE, MODEL_FILE, TRAINING_FILE, *POSTPROCESS_FILES, *_EITHER)


def write_saved(folder: str | Path, backbone: Backbone, templates: Templates, spec: EncoderSpec) -> None:
    """Write an encoder; see `SentenceEncoder.save_pretrained`."""
    with atomic_write(folder, last=SETTINGS_FILE, stale=_REPLACED) as new, quiet_transformers():
        backbone.save_pretrained(new)  # of an adapter, only its weights
        tokenizer = copy.deepcopy(templates.tokenizer)
        tokenizer.model_max_length += templates.longest_around  # for texts in their prompts, as sentence-transformers
        save_tokenizer(tokenizer, new)
        for file, weights in ((HEAD_FILE, spec.head_weights), (POOLING_FILE, spec.pooling_weights)):
            if weights:
                save_file(dict(weights), new / file)
        if spec.postprocess is not None:
            spec.postprocess.save(new)
        if option := unsupported_option(spec.settings, templates, backbone, spec.postprocess):
            log.warning("%s: sentence-transformers has no such module, only simcse_pl loads it", option)
            refuse_other_libraries(new)
        else:
            write_modules(spec, templates, backbone.config, new)
        _write_settings(new, spec.settings, backbone)


def _write_settings(folder: Path, settings: EncoderSettings, backbone: Backbone) -> None:
    saved = asdict(settings)
    if has_adapter(backbone):  # the options of `load_backbone` that load its base model as it is
        from simcse_pl.models.adapters import content_of_base  # few encoders have one

        causal = getattr(backbone.config, "is_causal", None) if is_decoder(backbone.config) else None
        saved["base"] = {
            "num_layers": backbone.config.num_hidden_layers,
            "bidirectional": None if causal is None else not causal,
            "content": content_of_base(backbone),
        }
    write_json(folder / SETTINGS_FILE, saved)


def read_spec(name: str, given: Mapping[str, Any]) -> EncoderSpec:
    """Read the parts of an encoder beside its backbone and tokenizer; an empty EncoderSpec for a plain checkpoint.

    Args:
        name: a folder or hub repository of this project, sentence-transformers or the official code, or package:NAME.
        given: the settings that replace the saved ones. Of a folder of sentence-transformers with another pooling than
            the given one, only the transformer is used: its head was trained on other vectors.
    """
    source, pooling = resolve(name), given.get("pooling")
    if (spec := _read_saved(source)) is not None:
        return spec
    try:
        spec = read_sentence_transformers(source)
    except UserError:
        if pooling is None:
            raise
        what = "has modules that are not supported; only its transformer is loaded"
        log.warning("pooling=%s: %s %s", name_of(pooling), name, what)
        return EncoderSpec()
    if spec is None and "-simcse-" in source:
        from simcse_pl.models.checkpoint_files import read_released

        spec = read_released(source)
    if spec is None or pooling in (None, spec.settings.pooling):
        return spec or EncoderSpec()
    plain, saved = vars(EncoderSettings()), vars(spec.settings)
    lost = [f"{option}={value}" for option, value in saved.items() if option not in given and value != plain[option]]
    if lost:
        kept = f"{name} has pooling={spec.settings.pooling}, so only its transformer is loaded"
        log.warning("pooling=%s: %s, without %s", name_of(pooling), kept, ", ".join(lost))
    return EncoderSpec(subfolder=spec.subfolder)


def _read_saved(source: str) -> EncoderSpec | None:
    path = find_file(source, SETTINGS_FILE)
    if path is None:
        return None
    if find_file(source, MODULES_FILE) and "__version__" in read_object(source, "", MODEL_FILE):  # ours have none
        log.warning("%s: sentence-transformers saved it last, so its files are read, and not %s", source, path.name)
        return None
    content = read_json(path)
    with reraise_as(f"{path} is damaged"):
        settings = TypeAdapter(EncoderSettings).validate_python(content)
    files = [find_file(source, name) for name in (HEAD_FILE, POOLING_FILE)]
    head, pooling = (read_weights(file) if file else {} for file in files)
    fitted, _ = (find_file(source, file) for file in POSTPROCESS_FILES)  # a hub repository's end up in one folder
    postprocess = load_postprocess(fitted.parent) if fitted else None
    head_weights = None if settings.head == "none" else head
    base = content.get("base", {})  # no other part of it is read: the folder may be downloaded
    return EncoderSpec(
        settings,
        head_weights,
        pooling,
        postprocess,
        num_layers=base.get("num_layers"),
        bidirectional=base.get("bidirectional"),
        content_of_base=base.get("content"),
    )


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


def load_saved(
    make: Callable[..., Any], name: str, given: Mapping[str, Any], backbone: str | None, options: dict[str, Any]
) -> Any:
    """Build an encoder from what is saved as `name`, in evaluation mode; see `SentenceEncoder.from_pretrained`.

    Args:
        make: the encoder's class.
        given: replace the saved settings if they are not None.
        backbone: the model that has the config and the tokenizer, if `name` is a state dict.
        options: the options of `load_backbone`.
    """
    if backbone is None and name.endswith(".ckpt") and not Path(name).is_dir():
        if options.get("adapter") is not None:
            raise UserError(f"adapter: {name} is no base model that a saved adapter could name: give a saved encoder")
        from simcse_pl.models.checkpoint_files import unpack_checkpoint

        with prefixed(name), reraise_as("damaged"), temporary_folder() as folder:
            unpack_checkpoint(name, folder)
            return load_saved(make, str(folder), given, None, options)
    given = {option: value for option, value in given.items() if value is not None}
    model, tokenizer, spec = _load_parts(name, given, backbone, options)
    settings = _merged_settings(name, given, spec, model, tokenizer)
    with reraise_as(f"{name} cannot encode"):
        encoder = make(model, tokenizer, **settings, postprocess=spec.postprocess)
    what = f"pooling={encoder.pooling} and head={encoder.head}"
    with reraise_as(f"{name}: the weights of its head or pooling do not fit {what}"):
        if encoder.projection is not None and spec.head_weights is not None:
            saved = spec.settings.head
            same = encoder.head.removesuffix("_train_only") == saved.removesuffix("_train_only")
            if same or (encoder.head, saved) == ("transform", "none"):  # the weights of the checkpoint's own model
                encoder.projection.load_state_dict(spec.head_weights)
            elif is_kept(saved) and not is_kept(encoder.head):
                advice = "set model.head=null to keep the saved one, or none to drop it"
                raise UserError(f"head={encoder.head}: head={saved} of {name} would be lost: {advice}")
            else:
                log.warning("head=%s: %s has head=%s; weights are drawn at random", encoder.head, name, saved)
        if encoder.pooling in (spec.settings.pooling, "pooler") and spec.pooling_weights is not None:
            encoder.pooling_layer.load_state_dict(spec.pooling_weights)
    return encoder.eval()


def _load_parts(
    name: str, given: Mapping[str, Any], backbone: str | None, options: Mapping[str, Any]
) -> tuple[Backbone, PreTrainedTokenizerBase, EncoderSpec]:
    """Return the backbone, the tokenizer and the other parts of an encoder; see `load_saved`."""
    if backbone is None and Path(name).is_file():
        raise UserError(f"{name} has weights alone: add backbone=MODEL, whose config and tokenizer belong to them")
    spec = EncoderSpec() if backbone else read_spec(name, given)
    for option in ("subfolder", "weights"):
        if option in options:
            raise UserError(f"{option}: an encoder's name says what is read: give the folder or the file as its name")
    saved = {"num_layers": spec.num_layers, "bidirectional": spec.bidirectional}
    options = {**options, **{option: value for option, value in saved.items() if options.get(option) is None}}
    model = load_backbone(backbone or name, subfolder=spec.subfolder, weights=name if backbone else None, **options)
    if spec.content_of_base and options.get("pretrained", True):
        from simcse_pl.models.adapters import content_of_base

        if content_of_base(model) not in (spec.content_of_base, None):
            raise UserError(f"{name}: its adapter belongs to other weights than {model.name_or_path} has: restore them")
    tokenizer = load_tokenizer(backbone or name, spec.subfolder)
    if not options.get("pretrained", True):
        return model, tokenizer, EncoderSpec(spec.settings)
    if given.get("head") == "transform" and spec.settings.head == "none":
        from simcse_pl.models.masked_lm import pretrained_transform

        spec = replace(spec, head_weights=pretrained_transform(backbone or name) or None)
    if given.get("pooling") == "pooler" != spec.settings.pooling:
        from simcse_pl.models.checkpoint_files import read_pooler

        file = Path(name) if backbone else find_weights(resolve(name), spec.subfolder)
        spec = replace(spec, pooling_weights=read_pooler(file))
    return model, tokenizer, spec


def _merged_settings(
    name: str, given: Mapping[str, Any], spec: EncoderSpec, model: Backbone, tokenizer: PreTrainedTokenizerBase
) -> dict[str, Any]:
    """Return the saved settings, replaced by the given ones; raise UserError unless they name a pooling."""
    settings: dict[str, Any] = {**vars(spec.settings), **given}
    if not settings["pooling"]:
        raise UserError(f"{name} does not say how it is pooled: add pooling=NAME, one of {CHOICES}")
    if "pooling" not in given and is_dotted(settings["pooling"]):
        raise UserError(f"{name} names code that is imported only if you ask for it: add pooling={settings['pooling']}")
    longest = longest_input(model)
    if settings["max_length"] and longest and "max_length" not in given:  # a saved length may exceed the limit
        how = {"as_text": settings["template_as_text"], "prompts": settings["prompts"]}
        longest = Templates(tokenizer, settings["template"], **how).longest_sentence(longest)
        settings["max_length"] = min(settings["max_length"], longest)
    return settings
