"""The folder of an encoder: `simcse.json`, the weights of the head and a post-processing in a Hugging Face folder.

The checkpoints released with the paper can be read as well. Their files do not state the pooling and the
head; their names do.
"""

import json
import logging
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from simcse_pl.models.adapters import ADAPTER_FILE, ADAPTER_WEIGHTS, has_adapter
from simcse_pl.models.backbone_config import is_decoder
from simcse_pl.models.backbone_type import Backbone
from simcse_pl.models.encoder_files import (
    SETTINGS_FILE,
    EncoderSettings,
    EncoderSpec,
    find_file,
    find_weights,
    parse_settings,
    read_weights,
)
from simcse_pl.models.sentence_transformers_format import (
    MODULES_FILE,
    check_modules,
    read_sentence_transformers,
    write_modules,
)
from simcse_pl.models.sources import load_config, quiet_transformers
from simcse_pl.models.templates import Templates
from simcse_pl.postprocessing.post_process import SETTINGS_FILE as POSTPROCESS_FILE
from simcse_pl.postprocessing.post_process import TENSORS_FILE
from simcse_pl.postprocessing.post_process import load as load_postprocess
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_write, read_json

log = logging.getLogger(__name__)

HEAD_FILE = "head.safetensors"
_EITHER = ("config.json", "model.safetensors", ADAPTER_FILE, ADAPTER_WEIGHTS)  # a whole backbone, or an adapter
_RELEASED = re.compile(r"(?:.*/)?(unsup|sup)-simcse-(?:bert|roberta)-(?:base|large)(?:-uncased)?/?")


def write_saved(folder: str | Path, backbone: Backbone, templates: Templates, spec: EncoderSpec) -> None:
    """Write an encoder; see `SentenceEncoder.save_pretrained`."""
    with atomic_write(folder, last=SETTINGS_FILE) as new, quiet_transformers():
        backbone.save_pretrained(new)  # of an adapter, only its weights
        templates.tokenizer.save_pretrained(new)
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


def read_spec(source: str, pooling: str | None = None, pooler: str | None = None) -> EncoderSpec:
    """Read the parts of an encoder beside its backbone and tokenizer; an empty EncoderSpec for a plain checkpoint.

    Args:
        source: a folder or hub repository of this project, sentence-transformers or the official code.
        pooling: if given, only settings of this project are read.
        pooler: if given, the source is read as a checkpoint of the official code.

    Raises:
        UserError: a file is damaged or missing, or an unknown pooler.
    """
    if pooler is not None:
        return _read_official(source, pooler)
    spec = _read_saved(source)
    if spec is None and pooling is None:
        spec = read_sentence_transformers(source)
        released = _RELEASED.fullmatch(source)
        if spec is None and released and find_file(source, "config.json"):
            spec = _read_official(source, "cls_before_pooler" if released[1] == "unsup" else "cls")
    return spec or EncoderSpec()


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
        "adapter.use_dora": any(getattr(own, "use_dora", False) for own in backbone.peft_config.values()),
    }
    for option in (option for option, on in changed.items() if on):
        raise UserError(f"{option}: sentence-transformers loads no such adapter, only simcse_pl loads it")
