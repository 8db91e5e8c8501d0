"""Load Hugging Face encoders and decoders, for any architecture."""

import inspect
import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedConfig

from simcse_pl.models.adapters import MERGE_FIRST, adapter_parameters, add_adapter, base_of, load_adapter
from simcse_pl.models.backbone_config import is_decoder, keep_layers, set_attention, set_dropout
from simcse_pl.models.backbone_type import Backbone
from simcse_pl.models.sources import load_config, loading, loading_options, quiet_transformers, resolve
from simcse_pl.utils.errors import UserError, did_you_mean, first_line, reraise_as

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_backbone(
    name: str,
    num_layers: int | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    subfolder: str = "",
    pretrained: bool = True,
    bidirectional: bool | None = None,
    dtype: str | None = None,
    quantization: Any = None,
    adapter: Any = None,
    new_layers: int = 0,
    attn_implementation: str | None = None,
) -> Backbone:
    """Load a pretrained encoder or decoder without its pooler, and with its adapter if the folder has one.

    Args:
        name: a name for `resolve`.
        num_layers: keep only the first layers; None keeps all.
        dropout: the dropout rate after the embeddings and after each sublayer; None keeps the checkpoint's.
        attention_dropout: the dropout rate of the attention probabilities. None takes `dropout`, or keeps the
            checkpoint's if that is None too.
        subfolder: the model's folder within the folder or repository.
        pretrained: false draws random weights and does not load the checkpoint's.
        bidirectional: switch a decoder's causal mask off (true) or on (false); None keeps the checkpoint's.
        dtype: the type of the weights, `float32` or `bfloat16`; None is float32.
        quantization: a quantization config of transformers, such as BitsAndBytesConfig.
        adapter: a PEFT config, to add a new adapter.
        new_layers: the number of last layers whose weights are drawn at random.
        attn_implementation: one of transformers' implementations of attention, such as `sdpa`, `eager` or
            `flash_attention_2`; None takes its default for the architecture.

    Raises:
        UserError: the checkpoint does not exist or lacks weights, its architecture is not a text encoder or decoder, or
            an option does not fit the architecture.
    """
    if attn_implementation is not None:
        _check_attention(attn_implementation)
    if dtype not in (None, *_TYPES):
        raise UserError(f"dtype={dtype}: choose one of {', '.join(_TYPES)}")
    source = resolve(name)
    if (base := base_of(source)) is not None and (adapter or not pretrained):
        option = "adapter" if adapter else "pretrained=false"
        raise UserError(f"{option}: {name} {MERGE_FIRST}")
    if (adapter or quantization) and not pretrained:
        raise UserError("pretrained=false: an adapter and a quantization need pretrained weights: set them to null")
    if new_layers and (adapter or quantization or base is not None or not pretrained):
        raise UserError(f"new_layers={new_layers}: it needs pretrained weights without adapter or quantization; set 0")
    in_adapter = nullcontext() if base is None else reraise_as(f"{name}: the base of its adapter", users_too=True)
    with in_adapter, loading(name if base is None else base) as source_of_weights:
        config = load_config(source_of_weights, subfolder)
        if config.is_encoder_decoder:
            raise UserError(f"{name}: {config.model_type} is an encoder-decoder model; choose an encoder, such as BERT")
        keep_layers(config, num_layers, name)
        set_dropout(config, dropout, attention_dropout, name)
        set_attention(config, bidirectional, name)
        if is_decoder(config):
            config.use_cache = False  # of keys and values, for generation
        if attn_implementation is not None:
            config._attn_implementation = attn_implementation
        model = _load_model(name, source_of_weights, config, subfolder, pretrained, dtype, quantization)
    for needed in ("input_ids", "attention_mask"):
        if needed not in inspect.signature(model.forward).parameters:
            raise UserError(f"{name}: {config.model_type} is not a text encoder that masks padding: no {needed}")
    if bidirectional and not _sees_next_tokens(model):
        raise UserError(f"bidirectional=true: the causal mask of {config.model_type} cannot be switched off")
    model = without_pooler(model)
    if new_layers:
        _draw_last_layers(model, new_layers)
    if base is not None:
        load_adapter(model, source)
    if adapter is not None:
        add_adapter(model, adapter)
    return model


def _check_attention(name: str) -> None:
    from transformers import AttentionInterface  # slow

    known = ["eager", *AttentionInterface().valid_keys()]
    if name not in known:
        raise UserError(f"attn_implementation={name}: transformers has no such attention{did_you_mean(name, known)}")


def _load_model(
    name: str,
    source: str,
    config: PreTrainedConfig,
    subfolder: str,
    pretrained: bool,
    dtype: str | None,
    quantization: Any,
) -> Backbone:
    if not pretrained:
        random: Backbone = AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
        return random
    options: dict[str, Any] = {}
    if quantization is not None:
        options["quantization_config"] = quantization
        if torch.cuda.is_available():  # quantized weights are made on the device that uses them
            options["device_map"] = {"": int(os.environ.get("LOCAL_RANK", 0))}
    model, missing = _load_weights(AutoModel, source, config, subfolder, _TYPES[dtype or "float32"], **options)
    _check_complete([key for key in missing if not key.startswith("pooler.")], name, config)
    return model


def _draw_last_layers(model: Backbone, number: int) -> None:
    available = model.config.num_hidden_layers
    if not 0 < number <= available:
        raise UserError(f"new_layers={number}: the model has {available} layers; choose 0 to {available}")
    random = AutoModel.from_config(model.config, dtype=model.dtype, trust_remote_code=False)
    own, drawn = (
        next((part for part in one.modules() if isinstance(part, nn.ModuleList) and len(part) == available), None)
        for one in (model, random)
    )
    if own is None or drawn is None:
        raise UserError(f"new_layers={number}: {model.config.model_type} has no list of layers")
    own[-number:].load_state_dict(drawn[-number:].state_dict())


@torch.no_grad()
def _sees_next_tokens(model: Backbone) -> bool:
    """Return whether the state of a token depends on the tokens after it."""
    one = torch.ones(1, 4, dtype=torch.int64, device=model.device)
    other = one.clone()
    other[0, -1] = 0
    model.eval()
    first, second = (model(input_ids=ids, attention_mask=one).last_hidden_state[0, 0] for ids in (one, other))
    return not torch.equal(first, second)


def rebuild_backbone(
    name: str, config: PreTrainedConfig, weights: Mapping[str, Tensor], num_layers: int | None = None
) -> Backbone:
    """Return a backbone with the weights of a state dict, and with its first layers only if `num_layers` is given.

    Raises:
        UserError: weights are missing or do not fit (the message begins with `name`), or `num_layers` is out of range.
    """
    keep_layers(config, num_layers, name)
    fits = reraise_as(f"{name}: its weights do not fit its config")
    with fits, torch.random.fork_rng(devices=[]), quiet_transformers():
        model = without_pooler(AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False))
        missing = model.load_state_dict(weights, strict=False).missing_keys
    _check_complete(missing, name, config)
    return model


def rebuild_with_adapter(name: str, config: PreTrainedConfig, adapter: Any, weights: Mapping[str, Tensor]) -> Backbone:
    """Return the base model that an adapter's config names, as `config` changes it, with the adapter of a state dict.

    Raises:
        UserError: the base model does not exist, or weights are missing or do not fit. Messages begin with `name`.
    """
    with loading(str(adapter.base_model_name_or_path)) as source:
        config.quantization_config = None
        model = without_pooler(_load_model(name, source, config, "", True, None, None))
    add_adapter(model, adapter)
    with reraise_as(f"{name}: its weights do not fit its config"):
        missing = model.load_state_dict(weights, strict=False).missing_keys
    _check_complete(sorted(adapter_parameters(model).intersection(missing)), name, config)
    return model


def load_masked_language_model(name: str, config: PreTrainedConfig | None = None) -> Backbone:
    """Load a masked language model in float32 with its pretrained head, in evaluation mode.

    `name` is one for `resolve`; `config` replaces the checkpoint's. Raise UserError if there is no such head.
    """
    with loading(name) as source, torch.random.fork_rng(devices=[]):
        model, missing = _load_weights(AutoModelForMaskedLM, source, config or load_config(source))
    if missing:
        raise UserError(f"{name} has no masked-language-model head (no {missing[0]})")
    return model


def longest_input(backbone: Backbone) -> int | None:
    """Return the largest number of tokens that the backbone takes, or None if there is no limit.

    RoBERTa and its descendants number positions from the id of the pad token plus 1, so they take fewer
    tokens than they have positions.
    """
    limit: int = getattr(backbone.config, "max_position_embeddings", None) or -1  # XLNet has -1
    for name, module in backbone.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            limit -= int(padding) + 1
            break
    return limit if limit > 0 else None


def word_embedding_layer(backbone: Backbone) -> nn.Embedding | None:
    """Return the layer of word embeddings, or None if it is not a plain one (I-BERT's is quantized)."""
    layer = backbone.get_input_embeddings()
    return layer if isinstance(layer, nn.Embedding) else None


def recompute_layers(backbone: Backbone) -> None:
    """Turn on activation checkpointing: backward recomputes each layer with the same random numbers.

    Raise UserError if the architecture does not support it (MPNet).
    """
    enable = getattr(backbone, "activation_checkpointing_enable", None) or backbone.gradient_checkpointing_enable
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise UserError(f"module.gradient_checkpointing=true: {first_line(error)}") from error


def _load_weights(
    auto: type[AutoModel | AutoModelForMaskedLM],
    source: str,
    config: PreTrainedConfig,
    subfolder: str = "",
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> tuple[Backbone, list[str]]:
    """Return a pretrained model, and the sorted names of the weights that the checkpoint lacks."""
    options |= {"dtype": dtype, "output_loading_info": True, **loading_options(source)}
    model, info = auto.from_pretrained(source, config=config, subfolder=subfolder, **options)
    return model, sorted(info["missing_keys"])


def without_pooler(model: Backbone) -> Backbone:
    """Remove the pooler of a model, which no pooling of ours reads, and return the model."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = nn.Identity()  # not None: SqueezeBERT and LayoutLM call it without a check
    return model


def _check_complete(missing: list[str], name: str, config: PreTrainedConfig) -> None:
    if missing:
        lacking = f"lack {min(missing)} ({len(missing)} missing)"
        raise UserError(f"{name}: its weights {lacking}: is it a {config.model_type}, or damaged?")
