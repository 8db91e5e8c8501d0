"""Load and run Hugging Face encoders and decoders, for any architecture."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.utils.generic import is_flash_attention_requested

from simcse_pl.models.adapters import add_adapter, load_adapter
from simcse_pl.models.attention import use_sdpa
from simcse_pl.models.sources import base_of, load_config, loading, loading_options, resolve
from simcse_pl.models.tokenization import BEGINS_WORD, SENTENCE_MASK
from simcse_pl.utils.code import locate
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import load_bare_weights
from simcse_pl.utils.types import Backbone, Batch

SELF_ATTENTION = "self_attention"  # of each token to itself, [batch, layers, heads, tokens]
_HIDDEN_DROPOUT = (
    "hidden_dropout_prob",  # BERT and most other encoders
    "dropout",  # DistilBERT, XLM, OPT
    "embedding_dropout",  # ModernBERT, Starcoder2
    "mlp_dropout",  # ModernBERT
    "hidden_dropout",  # GPT-NeoX, Falcon, BLOOM
    "resid_pdrop",  # GPT-2, Phi
    "embd_pdrop",  # GPT-2, Phi
    "resid_dropout",  # GPT-Neo
    "embed_dropout",  # GPT-Neo
    "residual_dropout",  # Starcoder2
)
_ATTENTION_DROPOUT = (
    "attention_probs_dropout_prob",  # BERT and most other encoders
    "attention_dropout",  # DistilBERT, XLM, ModernBERT, Llama and most other decoders
    "attn_pdrop",  # GPT-2
)

UNPADDED = "unpadded"  # an implementation of attention for transformers (see speed/unpadded.py)

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
    new_layers: NonNegativeInt = 0,
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
        new_layers: the number of last layers whose weights are drawn at random.
        attn_implementation: one of transformers' implementations of attention, such as `sdpa`, `eager` or
            `flash_attention_2`, or `unpadded` (see unpadded.py); None takes its default for the architecture.
        weights: a file with a state dict, to load in place of the checkpoint's weights; see tensors.load_bare_weights.

    Raises:
        UserError: the checkpoint does not exist or lacks weights, or it is an encoder-decoder model; or an option has
            no effect on the architecture.
    """
    source = resolve(name)
    base = base_of(source)
    with loading(base or name) as source_of_weights:
        config = load_config(source_of_weights, subfolder)
        if config.is_encoder_decoder:
            raise UserError(f"{name}: {config.model_type} is an encoder-decoder model; choose an encoder, such as BERT")
        if num_layers is not None:
            keep_layers(config, num_layers)
        if dropout is not None or attention_dropout is not None:
            set_dropout(config, dropout, attention_dropout, name)
        if bidirectional is not None:  # as LLM2Vec (BehnamGhader et al. 2024); saved configs keep it
            config.is_causal = not bidirectional
        if is_decoder(config):
            config.use_cache = False  # of keys and values, for generation
        if attn_implementation not in (None, UNPADDED):
            config._attn_implementation = attn_implementation
        empty = torch.get_default_device().type == "meta"  # see speed/fsdp.py
        torch_dtype = getattr(torch, dtype or "float32")
        if pretrained and not weights and not empty:
            model = _load_model(name, source_of_weights, config, subfolder, torch_dtype, quantization)
        else:
            model = draw_model(config, torch_dtype)
    if attn_implementation == UNPADDED or is_flash_attention_requested(model.config):
        locate("simcse_pl.speed.unpadded.use_unpadded")(model, first_position(model))
    if bidirectional and not empty and not _sees_next_tokens(model):
        raise UserError(f"bidirectional=true: the causal mask of {config.model_type} cannot be switched off")
    model = without_pooler(model)
    if weights and pretrained and not empty:
        load_bare_weights(model, weights)
    if new_layers:
        drawn = draw_model(config, model.dtype)
        loaded, random = (next(x for x in net.modules() if isinstance(x, nn.ModuleList)) for net in (model, drawn))
        loaded[-new_layers:].load_state_dict(random[-new_layers:].state_dict())
    if base is not None:
        load_adapter(model, source)
    if adapter is not None:
        add_adapter(model, adapter)
    return model


def keep_layers(config: PreTrainedConfig, num_layers: int) -> None:
    """Reduce a config to the first layers."""
    config.num_hidden_layers = num_layers
    if getattr(config, "layer_types", None):  # ModernBERT, Gemma
        config.layer_types = config.layer_types[:num_layers]


def set_dropout(config: PreTrainedConfig, hidden: float | None, attention: float | None, name: str) -> None:
    """Set the dropout rates of a config as `load_backbone` describes them; `name` is the model's in messages.

    Raise UserError if the architecture has no such dropout.
    """
    options = config.to_dict()
    known = {
        "dropout": [rate for rate in _HIDDEN_DROPOUT if rate in options],
        "attention_dropout": [rate for rate in _ATTENTION_DROPOUT if rate in options],
    }
    if attention is None and known["attention_dropout"]:
        attention = hidden
    for option, value in (("dropout", hidden), ("attention_dropout", attention)):
        if value is None:
            continue
        if not known[option]:
            raise UserError(f"{option}={value}: {name} ({config.model_type}) has no such dropout")
        for rate in known[option]:
            setattr(config, rate, float(value))


def is_decoder(config: PreTrainedConfig) -> bool:
    """Return whether an architecture is a decoder-only language model, such as GPT-2, OPT or Llama."""
    kind = config.model_type.removesuffix("_text")  # Gemma 3 without its image encoder
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def draw_model(config: PreTrainedConfig, dtype: torch.dtype = torch.float32) -> Backbone:
    """Return a model with random weights."""
    model: Backbone = AutoModel.from_config(config, dtype=dtype, trust_remote_code=False)
    return model


def _load_model(
    name: str, source: str, config: PreTrainedConfig, subfolder: str, dtype: torch.dtype, quantization: Any
) -> Backbone:
    """Load a pretrained model, or raise UserError if weights are missing, apart from those of a pooler."""
    options: dict[str, Any] = {"subfolder": subfolder, "dtype": dtype}
    if quantization is not None:
        options["quantization_config"] = quantization
        if torch.cuda.is_available():  # quantized weights are made on the device that uses them
            options["device_map"] = {"": torch.cuda.current_device()}
    model, missing = _load_weights(AutoModel, source, config, **options)
    if missing := [key for key in missing if not key.startswith("pooler.")]:
        lacking = f"its weights lack {missing[0]} ({len(missing)} missing)"
        raise UserError(f"{name}: {lacking}: is it a {config.model_type}, or damaged?")
    return model


@torch.no_grad()
def _sees_next_tokens(model: Backbone) -> bool:
    """Return whether the state of a token depends on the tokens after it."""
    ones = torch.ones(1, 4, dtype=torch.int64, device=model.device)
    changed = ones.clone()
    changed[0, -1] = 0
    model.eval()
    first, second = (model(input_ids=ids, attention_mask=ones).last_hidden_state[0, 0] for ids in (ones, changed))
    return not torch.equal(first, second)


def load_masked_language_model(name: str, config: PreTrainedConfig | None = None) -> Backbone:
    """Load a masked language model in float32 with its pretrained head, in evaluation mode.

    `name` is one for `resolve`; `config` replaces the checkpoint's. Raise UserError if there is no such head.
    """
    with loading(name) as source, torch.random.fork_rng(devices=[]):
        model, missing = _load_weights(AutoModelForMaskedLM, source, config or load_config(source))
    if missing:
        raise UserError(f"{name} has no masked-language-model head (no {missing[0]})")
    use_sdpa(model)
    return model


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


def _load_weights(
    auto: type[AutoModel | AutoModelForMaskedLM], source: str, config: PreTrainedConfig, **options: Any
) -> tuple[Backbone, list[str]]:
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
    inputs = _of_backbone(inputs)
    if last_only:
        return (backbone(**inputs).last_hidden_state,)
    states: tuple[Tensor, ...] = backbone(**inputs, output_hidden_states=True).hidden_states
    return states


def run_with_attention(backbone: Backbone, inputs: Batch) -> tuple[tuple[Tensor, ...], Batch]:
    """Return the states of `run_backbone`, and SELF_ATTENTION for the inputs of a pooling.

    Raise UserError if the backbone does not return its attention, for which its implementation must be eager.
    """
    inputs = _of_backbone(inputs)
    outputs = backbone(**inputs, output_hidden_states=True, output_attentions=True)
    attentions = outputs.get("attentions") or ()
    if len(attentions) != backbone.config.num_hidden_layers or not all(torch.is_tensor(x) for x in attentions):
        raise UserError(f"{type(backbone).__name__} does not return its attention: choose another pooling than ditto")
    diagonals = torch.stack([attention.diagonal(dim1=2, dim2=3) for attention in attentions], dim=1)
    return outputs.hidden_states, {SELF_ATTENTION: diagonals}


def _of_backbone(inputs: Batch) -> Batch:
    return {name: x for name, x in inputs.items() if name not in (SENTENCE_MASK, BEGINS_WORD)}


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
