"""Load and run Hugging Face encoders and decoders, for any architecture."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForTextEncoding, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES

from simcse_pl.models.sources import base_of, load_config, loading, loading_options, resolve
from simcse_pl.models.tokenization import BEGINS_WORD, SENTENCE_MASK
from simcse_pl.utils.code import optional
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.hub import quiet
from simcse_pl.utils.private import (
    attention_functions,
    attention_of,
    register_attention,
    set_attention,
    uses_flash_attention,
)
from simcse_pl.utils.types import Backbone, Batch

SDPA = "sdpa_without_synchronization"  # our names of implementations of attention: "sdpa" is for other models, too
UNPADDED = "unpadded"  # see speed/unpadded.py

DropoutRate = Annotated[float, Field(ge=0, lt=1)]


def load_backbone(
    name: str,
    num_layers: PositiveInt | None = None,
    dropout: DropoutRate | None = None,
    attention_dropout: DropoutRate | None = None,
    subfolder: str = "",
    pretrained: bool = True,
    bidirectional: bool | None = None,
    dtype: Literal["float32", "bfloat16"] | None = None,
    quantization: Any = None,
    adapter: Any = None,
    attn_implementation: str | None = None,
    weights: str | None = None,
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
        attn_implementation: one of transformers' implementations of attention, such as `sdpa`, `eager` or
            `flash_attention_2`, or `unpadded` (see unpadded.py); None takes its default for the architecture.
        weights: a file with a state dict, to load in place of the checkpoint's weights; see load_bare_weights.

    Raises:
        UserError: the checkpoint does not exist or lacks weights, or it is an encoder-decoder model other than T5, of
            which the encoder is loaded; an option has no effect on the architecture; or `adapter` would be added to
            weights that are not those of `name`.
    """
    source = resolve(name)
    base = base_of(source)
    on_meta = torch.get_default_device().type == "meta"  # see speed/fsdp.py
    with loading(base or name) as model_source:
        config = load_config(model_source, subfolder)
        if config.is_encoder_decoder and _auto_class(config) is AutoModel:
            raise UserError(f"{name}: {config.model_type} is an encoder-decoder model, of which no part is supported")
        if any(option is not None for option in (num_layers, dropout, attention_dropout, bidirectional)):
            from simcse_pl.models.changes import change_config

            change_config(config, name, num_layers, dropout, attention_dropout, bidirectional)
        if is_decoder(config):
            config.use_cache = False  # the cache of keys and values is for generation
        if attn_implementation is not None and attn_implementation != UNPADDED:
            set_attention(config, attn_implementation)
        torch_dtype = getattr(torch, dtype or "float32")
        if pretrained and not weights and not on_meta:
            model = _load_model(name, model_source, config, subfolder, torch_dtype, quantization)
        else:
            model = draw_model(config, torch_dtype)
    if attn_implementation == UNPADDED or uses_flash_attention(model.config):
        optional("speed.unpadded.use_unpadded")(model, first_position(model))
    if bidirectional is not None and not on_meta:
        from simcse_pl.models.changes import check_bidirectional

        check_bidirectional(model, bidirectional)
    model = without_pooler(model)
    if weights and pretrained and not on_meta:
        from simcse_pl.models.changes import load_bare_weights

        load_bare_weights(model, weights)
    if adapter is not None and (weights or subfolder or not pretrained):
        raise UserError(
            f"adapter: its folder would name {name} as the base model, but the weights are those of a file, of a "
            "subfolder or of pretrained=false: save them as a folder first, and train the adapter on that"
        )
    if base is not None or adapter is not None:
        from simcse_pl.models.adapters import add_adapter, load_adapter

        if base is not None:
            load_adapter(model, source)
        if adapter is not None:
            add_adapter(model, adapter)
    return model


def is_decoder(config: PreTrainedConfig) -> bool:
    """Return whether an architecture is a decoder-only language model, such as GPT-2, OPT or Llama."""
    kind = config.model_type.removesuffix("_text")  # Gemma 3 without its image encoder
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def draw_model(config: PreTrainedConfig, dtype: torch.dtype = torch.float32) -> Backbone:
    """Return a model with random weights."""
    model: Backbone = _auto_class(config).from_config(config, dtype=dtype, trust_remote_code=False)
    return model


def _auto_class(config: PreTrainedConfig) -> Any:
    """Return the class that loads a model, of T5 its encoder."""
    return AutoModelForTextEncoding if config.model_type in ("t5", "mt5", "umt5") else AutoModel


def _load_model(
    name: str, source: str, config: PreTrainedConfig, subfolder: str, dtype: torch.dtype, quantization: Any
) -> Backbone:
    """Load a pretrained model, or raise UserError if weights are missing, apart from those of a pooler."""
    options: dict[str, Any] = {"subfolder": subfolder, "dtype": dtype}
    if quantization is not None:
        options["quantization_config"] = quantization
        if torch.cuda.is_available():  # quantized weights are made on the device that uses them
            options["device_map"] = {"": torch.cuda.current_device()}
    model, missing = load_weights(_auto_class(config), source, config, **options)
    if missing := [key for key in missing if not key.startswith("pooler.")]:
        lacking = f"its weights lack {missing[0]} ({len(missing)} missing)"
        raise UserError(f"{name}: {lacking}: is it a {config.model_type}, or damaged?")
    return model


def has_adapter(backbone: Backbone) -> bool:
    """Return whether a backbone has an adapter (see adapters.py)."""
    return bool(getattr(backbone, "peft_config", None))


def longest_input(backbone: Backbone) -> int | None:
    """Return the largest number of tokens that the backbone takes, or None if there is no limit."""
    limit: int = getattr(backbone.config, "max_position_embeddings", None) or -1  # XLNet has -1
    limit -= first_position(backbone)
    return limit if limit > 0 else None


def first_position(backbone: Backbone) -> int:
    """Return the number of the first token's position: the id of the pad token plus 1 in RoBERTa's family, or 0."""
    for name, module in backbone.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return int(padding) + 1
    return 0


def recompute_layers(backbone: Backbone) -> None:
    """Turn on activation checkpointing: backward recomputes each layer with the same random numbers."""
    enable = getattr(backbone, "activation_checkpointing_enable", None) or backbone.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def recomputes_layers(backbone: Backbone) -> bool:
    """Return whether backward recomputes layers."""
    return any(getattr(part, "gradient_checkpointing", False) for part in backbone.modules())


def load_weights(auto: Any, source: str, config: PreTrainedConfig, **options: Any) -> tuple[Backbone, list[str]]:
    """Return a pretrained model, and the sorted names of the weights that the checkpoint lacks."""
    options = {"dtype": torch.float32, "output_loading_info": True} | options | loading_options(source)
    model, info = auto.from_pretrained(source, config=config, **options)
    return model, sorted(info["missing_keys"])


def without_pooler(model: Backbone) -> Backbone:
    """Remove the pooler of a model, which no pooling of ours reads, and return the model."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = nn.Identity()  # not None: SqueezeBERT and LayoutLM call it without a check
    return model


def run_backbone(backbone: Backbone, inputs: Batch, last_only: bool = False) -> tuple[Tensor, ...]:
    """Return the outputs of the embeddings and of each layer, each [batch, tokens, dim], or of the last layer only."""
    inputs = backbone_inputs(inputs)
    if last_only:
        return (backbone(**inputs).last_hidden_state,)
    states: tuple[Tensor, ...] = backbone(**inputs, output_hidden_states=True).hidden_states
    return states


def backbone_inputs(inputs: Batch) -> Batch:
    """Return the inputs that a backbone takes."""
    return {name: x for name, x in inputs.items() if name not in (SENTENCE_MASK, BEGINS_WORD)}


def use_sdpa(model: Backbone, name: str = SDPA, attention: Callable[..., Any] | None = None) -> None:
    """Give a model with sdpa attention one of ours, whose masks are those of `mask_without_synchronization`.

    `name` is new to transformers, and stands for `attention`; None is that of transformers.
    """
    register_attention(name, attention or attention_functions("sdpa")[0], mask_without_synchronization)
    if attention_of(model.config) in ("sdpa", SDPA):
        with quiet("transformers.modeling_utils"):  # a model with attention of its own, such as Falcon, keeps it
            model.set_attn_implementation(name)


def mask_without_synchronization(*, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """Return the mask of sdpa attention that transformers makes, without waiting for a GPU.

    transformers omits the mask of a batch without padding. To find out whether there is padding, it waits for the GPU.
    On a GPU, the mask is therefore never omitted.
    """
    if attention_mask is not None and not attention_mask.is_cpu:
        options["allow_is_bidirectional_skip"] = False
    mask: Tensor | None = attention_functions("sdpa")[1](attention_mask=attention_mask, **options)
    return mask


def packs_sequences(backbone: Backbone) -> bool:
    """Return whether a backbone computes no padding."""
    return bool(vars(backbone).get("packs_sequences"))


@contextmanager
def with_padding(backbone: Backbone) -> Iterator[None]:
    """Compute padding, too, in the passes of the context."""
    packs, vars(backbone)["packs_sequences"] = packs_sequences(backbone), False
    try:
        yield
    finally:
        vars(backbone)["packs_sequences"] = packs
