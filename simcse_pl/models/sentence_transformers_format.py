"""The folder format of sentence-transformers: `modules.json`, and one folder for each module.

Folders of its versions 2 to 6 can be read, and all of these versions can read what is written. The
library itself is not needed: it would take seconds to import, and the default encoder has this format.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.tokenization_utils_base import LARGE_INTEGER

from simcse_pl.models.backbone import has_adapter
from simcse_pl.models.heads import ACTIVATIONS, LAYER_NORM, is_kept, layers_of
from simcse_pl.models.pooling import POOLINGS, Pooling, find_pooling, is_dotted, mean_over_tokens
from simcse_pl.models.settings import EncoderSettings, EncoderSpec
from simcse_pl.models.sources import find_file, find_weights, load_config, load_tokenizer
from simcse_pl.models.templates import SENTENCE, Templates
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import read_json, write_json
from simcse_pl.utils.tensors import DOCUMENT, QUERY, read_weights
from simcse_pl.utils.types import Backbone

log = logging.getLogger(__name__)

MODULES_FILE, MODEL_FILE = "modules.json", "config_sentence_transformers.json"
Module = tuple[str, dict[str, Any], dict[str, Tensor]]  # its class, options and weights
_CLASSES = "sentence_transformers."
# Before version 5.4 each pooling had a switch of its own. Of several, the vectors are concatenated in this order.
_SWITCHES = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "weighted_mean": "pooling_mode_weightedmean_tokens",
    "last_token": "pooling_mode_lasttoken",
}
_NAMES = {"lasttoken": "last_token", "weightedmean": "weighted_mean"}  # the library's names since then
_ORDER = re.compile("Transformer (WeightedLayerPooling )?Pooling ((Dense|LayerNorm) )*(Normalize )?")
_ON_VECTORS = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
# The values of a module's options that a SentenceEncoder can reproduce; they are the library's defaults.
_SUPPORTED: dict[str, dict[str, Any]] = {
    "Transformer": {"transformer_task": "feature-extraction", "do_lower_case": False, "processing_kwargs": {}}
    | dict.fromkeys(("query_length", "document_length", "query_expansion")),
    "Pooling": {},
    "Dense": {"use_residual": False, **_ON_VECTORS},
    "LayerNorm": {},
    "WeightedLayerPooling": {},
    "Normalize": _ON_VECTORS,
}
# Old versions named the transformer's settings after its architecture.
_ARCHITECTURES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_TRANSFORMER_FILES = [f"sentence_{kind}_config.json" for kind in _ARCHITECTURES]


def _path(activation: type[nn.Module]) -> str:
    return f"{activation.__module__}.{activation.__name__}"


REFUSED = "simcse_pl.only_SimCSE_loads_this_encoder"  # no such class: messages of sentence-transformers name it
_ACTIVATIONS = {_path(nn.Identity): ""} | {_path(kind): f"_{name}" for name, kind in ACTIVATIONS.items()}


def read_sentence_transformers(source: str) -> EncoderSpec | None:
    """Read an encoder from a folder or hub repository of sentence-transformers; return None for any other."""
    path = find_file(source, MODULES_FILE)
    if path is None:
        return None
    with reraise_as(f"{source}: its sentence-transformers files are damaged"):
        modules = _read_modules(source, read_json(path))
        configs, folder = {kind: config for kind, _, config in modules}, modules[0][1]
        normalize, max_length = "Normalize" in configs, configs["Transformer"].get("max_seq_length")
        if max_length is None:  # since version 5.4, it is the tokenizer's and may be huge
            max_length = read_object(source, folder, "tokenizer_config.json").get("model_max_length")
        max_length = max_length if isinstance(max_length, int) and max_length < LARGE_INTEGER else None
        model = read_object(source, "", MODEL_FILE)
        truncate_dim, prompts = model.get("truncate_dim"), model.get("prompts") or {}
        if truncate_dim and normalize:
            _unsupported(source, f"vectors that are cut to truncate_dim={truncate_dim} after a module Normalize")
        default = prompts.get(model.get("default_prompt_name"))
        not_pooled = configs["Pooling"].get("include_prompt") is False
        if default and not_pooled:
            _unsupported(source, f"the prompt {default!r}, which is no part of the pooling")
        template, as_text = default + SENTENCE if default else None, False
        if not_pooled and any(prompts.values()):
            log.warning("%s: its pooling excludes prompts: it is loaded without them", source)
        if not_pooled or not any(prompts.values()):  # the library writes empty ones
            prompts = {}
        else:
            templates = Templates(load_tokenizer(source, folder), template, prompts=prompts)
            as_text = templates.prefixes[None] is None  # one text also has the library's tokens
            max_length = max_length and max_length - templates.longest_around
        similarity = model.get("similarity_fn_name") or "cosine"
        if similarity != "cosine" and not (similarity == "dot" and normalize):
            log.warning("%s: its similarity is %s: evaluation and search take the cosine", source, similarity)
        pooling, pooling_weights = _pooling(source, configs["Pooling"]), None
        if (first := configs.get("WeightedLayerPooling", {}).get("layer_start")) is not None:
            if pooling != "mean" or not read_object(source, folder, "config.json").get("output_hidden_states"):
                _unsupported(source, f"a module WeightedLayerPooling with the pooling {pooling}, or without all layers")
            pooling, pooling_weights = f"weighted_layers_{first}", read_weights(find_weights(source, modules[1][1]))
        head, head_weights = _read_head(source, modules)
        settings = EncoderSettings(
            pooling=pooling,
            head=head,
            max_length=max_length,
            normalize=normalize,
            template=template,
            truncate_dim=truncate_dim,
            template_as_text="always" if as_text else "never",
            prompts=prompts,
            similarity=similarity,
        )
    return EncoderSpec(settings, head_weights or None, pooling_weights, subfolder=folder)


def _unsupported(source: str, what: str) -> NoReturn:
    hint = "add pooling=NAME to load its transformer alone"
    raise UserError(f"{source}: this sentence-transformers folder has {what}, which is not supported; {hint}")


def _read_modules(source: str, entries: list[dict[str, str]]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the name of the class, the folder and the options of each module; an encoder can reproduce all of them."""
    modules = []
    for entry in entries:
        kind, path = entry["type"].rpartition(".")[2], PurePosixPath(entry["path"])
        if not entry["type"].startswith(_CLASSES) or kind not in _SUPPORTED:
            _unsupported(source, f"a module {entry['type']}")
        folder = str(path) if path.parts else ""
        files = _TRANSFORMER_FILES if kind == "Transformer" else ["config.json"]
        config = next((content for file in files if (content := read_object(source, folder, file))), {})
        for option, supported in _SUPPORTED[kind].items():
            if (value := config.get(option)) is not None and value != supported:
                _unsupported(source, f"a module {kind} with {option}={value}")
        modules.append((kind, folder, config))
    kinds = [kind for kind, _, _ in modules]
    if not _ORDER.fullmatch("".join(f"{kind} " for kind in kinds)):
        _unsupported(source, f"the modules {', '.join(kinds)} in this order")
    return modules


def _read_head(source: str, modules: list[tuple[str, str, dict[str, Any]]]) -> tuple[str, dict[str, Tensor]]:
    """Return the name and the weights of the head that modules Dense and LayerNorm form."""
    names, weights, index = list[str](), dict[str, Tensor](), 0
    for kind, folder, config in modules:
        if kind not in ("Dense", "LayerNorm"):
            continue
        if kind == "Dense":
            width, activation = config["out_features"], config.get("activation_function", _path(nn.Tanh))
            if activation not in _ACTIVATIONS:
                _unsupported(source, f"a module Dense with activation_function={activation}")
            width = "" if width == config["in_features"] else f"_{width}"
            bias = "" if config.get("bias", True) else "_without_bias"
            names.append(f"linear{width}{_ACTIVATIONS[activation]}{bias}")
        else:
            names.append(LAYER_NORM)
        for key, x in read_weights(find_weights(source, folder)).items():
            weights[f"{index}.{key.rpartition('.')[2]}"] = x
        index += 2 if kind == "Dense" else 1  # a linear layer has an activation after it
    head = "+".join(names) or "none"
    return "mlp" if head == "linear_tanh" else head, weights


def read_object(source: str, folder: str, file: str) -> dict[str, Any]:
    """Return a JSON object of a folder; an empty one if the file does not exist."""
    path = find_file(source, file, folder)
    return {} if path is None else dict(read_json(path))


def _pooling(source: str, config: Mapping[str, Any]) -> str:
    others = [name for name in config if name.startswith("pooling_mode_") and name not in _SWITCHES.values()]
    switches = dict(zip(others, others, strict=True)) | _SWITCHES
    modes = config.get("pooling_mode") or [name for name, switch in switches.items() if config.get(switch)] or "mean"
    names = [_NAMES.get(mode, mode) for mode in ([modes] if isinstance(modes, str) else modes)]
    if not set(names) <= set(_SWITCHES):
        _unsupported(source, f"the pooling {modes}")
    return "+".join(names)


def unsupported_option(
    settings: EncoderSettings, templates: Templates, backbone: Backbone, postprocess: PostProcess | None = None
) -> str | None:
    """Return the first option of an encoder that the modules of sentence-transformers cannot compute, or None.

    That library averages hidden states over layers first, which changes the maximum over tokens. Its prompts are text
    before the sentence. So of the poolings of several layers only the mean can be exported, and of the templates only
    prefixes. An adapter is loaded into its base model as it comes, and without the magnitudes of DoRA.
    """
    assert settings.pooling is not None
    names, plain, of_last_layer = settings.pooling.split("+"), False, True
    if len(names) > 1:
        plain = {*names} <= {*_SWITCHES}
    elif not is_dotted(settings.pooling):
        pooling = find_pooling(settings.pooling, backbone.config)
        of_last_layer = pooling.layers == (-1,)
        averaged = of_last_layer or pooling.over_tokens is mean_over_tokens
        plain = settings.pooling == "pooler" or (type(pooling) is Pooling and pooling.mask_of is None and averaged)
    template = templates.texts[0] if templates.texts else ""
    is_prefix = template.partition(SENTENCE)[2] == "" and settings.template_as_text != "always"
    no_prefix = [name for name, prefix in templates.prefixes.items() if prefix is None]
    beyond = {
        f"pooling={settings.pooling}": not plain,
        f"template={template!r}{' without template_as_text=always' if is_prefix else ''}": None in no_prefix,
        f"prompts={settings.prompts}": len(no_prefix) > (None in no_prefix),
        "template_bias=always": settings.template_bias == "always",
        "final_period=true": settings.final_period,
        "truncation_side=left": templates.tokenizer.truncation_side == "left" and any(templates.prefixes.values()),
        "head=transform": settings.head == "transform",
        f"postprocess={postprocess and postprocess.name}": postprocess is not None and not postprocess.is_affine,
    }
    if has_adapter(backbone):
        config, causal = load_config(str(backbone.name_or_path)), getattr(backbone.config, "is_causal", True)
        beyond |= {  # its base model has a config of its own, which returns the last layer alone
            f"pooling={settings.pooling}": not (plain and of_last_layer),
            "num_layers": config.num_hidden_layers != backbone.config.num_hidden_layers,
            "bidirectional": getattr(config, "is_causal", True) != causal,
            "adapter.use_dora": any(getattr(adapter, "use_dora", False) for adapter in backbone.peft_config.values()),
        }
    return next((option for option, on in beyond.items() if on), None)


def write_modules(spec: EncoderSpec, templates: Templates, config: PreTrainedConfig, folder: Path) -> None:
    """Write the files that let `SentenceTransformer(folder)` load a folder with a transformer and its tokenizer.

    `unsupported_option` must be None.
    """
    entries = [{"idx": 0, "name": "0", "path": "", "type": f"{_CLASSES}models.Transformer"}]
    for number, (kind, options, weights) in enumerate(_modules(spec, config), 1):
        path = f"{number}_{kind}"
        entries.append({"idx": number, "name": str(number), "path": path, "type": f"{_CLASSES}models.{kind}"})
        (folder / path).mkdir()
        write_json(folder / path / "config.json", options)
        if weights:
            weights = {name: x.detach().float().cpu().contiguous() for name, x in weights.items()}
            save_file(weights, folder / path / "model.safetensors")
        if kind == "WeightedLayerPooling":
            write_json(folder / "config.json", read_json(folder / "config.json") | {"output_hidden_states": True})
    model: dict[str, Any] = {"similarity_fn_name": spec.settings.similarity}
    if not spec.settings.normalize and spec.settings.truncate_dim:
        model["truncate_dim"] = spec.settings.truncate_dim
    prefixes = templates.prefixes
    if default := prefixes.pop(None):
        names = [name for name, prefix in prefixes.items() if prefix == default]
        name = next(iter(names), "default" if "default" not in prefixes else "default template")
        # the library takes "" for these two if they are missing
        prefixes = {QUERY: default, DOCUMENT: default} | prefixes | {name: default}
        model["default_prompt_name"] = name
    if prefixes:
        model["prompts"] = prefixes
    assert spec.settings.max_length is not None
    max_length = spec.settings.max_length + templates.longest_around
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    write_json(folder / MODEL_FILE, model)
    write_json(folder / MODULES_FILE, entries)


def refuse_other_libraries(folder: Path) -> None:
    """Write modules at which sentence-transformers stops: without any, it takes the mean of the last layer."""
    write_json(folder / MODULES_FILE, [{"idx": 0, "name": "0", "path": "", "type": REFUSED}])


def _modules(spec: EncoderSpec, config: PreTrainedConfig) -> list[Module]:
    """Return the modules after the transformer.

    A pooler, a head that is kept at test time and a linear post-processing become modules Dense; a LayerNorm is a
    module. The library truncates vectors after its modules. If they are to have length 1 afterwards, a module Dense
    truncates them instead.
    """
    settings, num_layers, dim = spec.settings, config.num_hidden_layers, config.hidden_size
    assert settings.pooling is not None
    parts = [find_pooling(name, config) for name in settings.pooling.split("+")]
    pooling = parts[0]  # the only one, unless all are of the last layer
    assert isinstance(pooling, Pooling)
    modules: list[Module] = []
    if pooling.layers != (-1,):
        options = {"word_embedding_dimension": dim, "layer_start": 0, "num_hidden_layers": num_layers}
        layer_weights = torch.zeros(num_layers + 1)
        layer_weights[list(pooling.layers)] = 1
        if pooling.layer_weights is not None and spec.pooling_weights:
            options["layer_start"], layer_weights = pooling.layers[0], spec.pooling_weights["layer_weights"]
        modules.append(("WeightedLayerPooling", options, {"layer_weights": layer_weights}))
    modules.append(("Pooling", _pooling_options([part.over_tokens for part in parts], dim), {}))
    width = len(parts) * dim
    if settings.pooling == "pooler":
        assert spec.pooling_weights is not None
        modules.append(_dense(nn.Tanh, spec.pooling_weights["dense.weight"], spec.pooling_weights["dense.bias"]))
    if settings.head != "none" and is_kept(settings.head):
        with torch.device("meta"):  # without random numbers
            head = layers_of(settings.head, width)
        head.load_state_dict(spec.head_weights or {}, assign=True)
        layers = iter(head)
        for layer in layers:
            if isinstance(layer, nn.Linear):
                width = layer.out_features
                modules.append(_dense(type(next(layers)), layer.weight, layer.bias))
            else:
                weights = {f"norm.{name}": x for name, x in layer.state_dict().items()}
                modules.append(("LayerNorm", {"dimension": width}, weights))
    if spec.postprocess is not None:
        affine = spec.postprocess.tensors()
        mean, matrix = affine["mean"], affine["matrix"]
        modules.append(_dense(nn.Identity, matrix.T, -mean @ matrix))
        width = matrix.shape[1]
    if settings.normalize and settings.truncate_dim:
        first = torch.eye(width)[: settings.truncate_dim]
        modules.append(_dense(nn.Identity, first, torch.zeros(len(first))))
    if settings.normalize:
        modules.append(("Normalize", {}, {}))
    return modules


def _pooling_options(reductions: Sequence[Any], dim: int) -> dict[str, Any]:
    """Return the options of a module Pooling; if they have an order of their own, only version 5.4 or later has it."""
    names = {POOLINGS[name]().over_tokens: name for name in _SWITCHES}
    given = [names[reduction] for reduction in reductions]
    if given != [name for name in _SWITCHES if name in given]:
        library_names = {name: library for library, name in _NAMES.items()}
        return {"embedding_dimension": dim, "pooling_mode": [library_names.get(name, name) for name in given]}
    return {"word_embedding_dimension": dim} | {switch: name in given for name, switch in _SWITCHES.items()}


def _dense(activation: type[nn.Module], weight: Tensor, bias: Tensor | None) -> Module:
    width, dim = weight.shape
    options = {"in_features": dim, "out_features": width, "bias": bias is not None}
    weights = {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias})
    return "Dense", options | {"activation_function": _path(activation)}, weights
