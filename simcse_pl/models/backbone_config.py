"""Changes to the config of a backbone before its weights are loaded: fewer layers, dropout, no causal mask."""

from transformers import PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from simcse_pl.utils.errors import UserError

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


def keep_layers(config: PreTrainedConfig, num_layers: int | None, name: str) -> None:
    """Reduce a config to the first layers, or raise UserError if it has fewer. None keeps all."""
    if num_layers is None:
        return
    available = config.num_hidden_layers
    if not 1 <= num_layers <= available:
        raise UserError(f"num_layers={num_layers}: {name} has {available} layers; choose 1 to {available}")
    config.num_hidden_layers = num_layers
    if getattr(config, "layer_types", None):  # ModernBERT, Gemma
        config.layer_types = config.layer_types[:num_layers]


def set_dropout(config: PreTrainedConfig, hidden: float | None, attention: float | None, name: str) -> None:
    """Set the dropout rates of a config as `load_backbone` describes them; `name` is the model's in messages.

    Raises:
        UserError: a rate is out of range, or the architecture has no such dropout.
    """
    own = config.to_dict()
    known = {
        "dropout": [rate for rate in _HIDDEN_DROPOUT if rate in own],
        "attention_dropout": [rate for rate in _ATTENTION_DROPOUT if rate in own],
    }
    if attention is None and known["attention_dropout"]:
        attention = hidden
    for option, value in (("dropout", hidden), ("attention_dropout", attention)):
        if value is None:
            continue
        if not 0 <= value < 1:
            raise UserError(f"{option}={value}: it must be at least 0 and below 1")
        if not known[option]:
            others = [other for other in known if known[other]]
            hint = f"; it has {others[0]}" if others else ""
            raise UserError(f"{option}={value}: {name} ({config.model_type}) has no such dropout{hint}")
        for rate in known[option]:
            setattr(config, rate, float(value))


def is_decoder(config: PreTrainedConfig) -> bool:
    """Return whether an architecture is a decoder-only language model, such as GPT-2, OPT or Llama."""
    kind = config.model_type.removesuffix("_text")  # Gemma 3 without its image encoder
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def set_attention(config: PreTrainedConfig, bidirectional: bool | None, name: str) -> None:
    """Switch the causal mask of a decoder off or on, as LLM2Vec (BehnamGhader et al. 2024) does; None keeps it.

    Saved configs keep the setting, and transformers reads it. Raise UserError for an encoder, which has no such mask.
    """
    if bidirectional is None:
        return
    if not is_decoder(config):
        raise UserError(f"bidirectional={bidirectional}: {name} ({config.model_type}) is an encoder: set it to null")
    config.is_causal = not bidirectional
