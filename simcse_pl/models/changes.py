"""Changes of a backbone that few runs ask for: fewer or new layers, dropout, no causal mask, bare weights."""

import logging
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedConfig

from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.tensors import read_weights
from simcse_pl.utils.types import Backbone

log = logging.getLogger(__name__)
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
    "dropout_rate",  # T5, also of the attention
)
_ATTENTION_DROPOUT = (
    "attention_probs_dropout_prob",  # BERT and most other encoders
    "attention_dropout",  # DistilBERT, XLM, ModernBERT, Llama and most other decoders
    "attn_pdrop",  # GPT-2
)


def change_config(
    config: PreTrainedConfig,
    name: str,
    num_layers: int | None,
    dropout: float | None,
    attention_dropout: float | None,
    bidirectional: bool | None,
) -> None:
    """Change a config as `load_backbone` describes the options; `name` is the model's in messages.

    Raise UserError if the architecture has no such dropout.
    """
    if num_layers is not None:
        keep_layers(config, num_layers)
    if bidirectional is not None:  # as LLM2Vec (BehnamGhader et al. 2024); saved configs keep it
        config.is_causal = not bidirectional
    rates = config.to_dict()
    hidden = [rate for rate in _HIDDEN_DROPOUT if rate in rates]
    attention_rates = [rate for rate in _ATTENTION_DROPOUT if rate in rates]
    if attention_dropout is None and attention_rates:
        attention_dropout = dropout
    options = {"dropout": (dropout, hidden), "attention_dropout": (attention_dropout, attention_rates)}
    for option, (value, known) in options.items():
        if value is None:
            continue
        if not known:
            raise UserError(f"{option}={value}: {name} ({config.model_type}) has no such dropout")
        for rate in known:
            setattr(config, rate, float(value))


def keep_layers(config: PreTrainedConfig, num_layers: int) -> None:
    """Reduce a config to the first layers; raise UserError if it has fewer."""
    if num_layers > config.num_hidden_layers:
        raise UserError(f"num_layers={num_layers}: the model has {config.num_hidden_layers} layers")
    config.num_hidden_layers = num_layers
    if getattr(config, "layer_types", None):  # ModernBERT, Gemma
        config.layer_types = config.layer_types[:num_layers]


@torch.no_grad()
def check_bidirectional(model: Backbone, bidirectional: bool) -> None:
    """Raise UserError unless the state of a token depends on the tokens after it, or does not, as asked."""
    ones = torch.ones(1, 4, dtype=torch.int64, device=model.device)
    changed = ones.clone()
    changed[0, -1] = 0
    model.eval()
    option, state = f"bidirectional={str(bidirectional).lower()}", "off" if bidirectional else "on"
    refused = f"{option}: the causal mask of {model.config.model_type} cannot be switched {state}"
    with reraise_as(refused):  # MPT always adds its mask
        first, second = (model(input_ids=ids, attention_mask=ones).last_hidden_state[0, 0] for ids in (ones, changed))
    if torch.equal(first, second) == bidirectional:
        raise UserError(refused)


def load_bare_weights(model: nn.Module, file: str) -> None:
    """Load a model's weights from a file of `torch.save(module.state_dict())`, or of safetensors.

    In the file, their names begin with a prefix, such as `bert.` or `module.encoder.`: the one under which most of them
    are. The log names it, and the other weights of the file, such as those of a pooler.
    """
    weights, state = read_weights(Path(file)), model.state_dict()
    first = next(iter(state))
    prefixes = [name.removesuffix(first) for name in weights if f".{name}".endswith(f".{first}")]
    prefix = max(prefixes, key=lambda start: sum(start + name in weights for name in state), default="")
    loaded = {name: weights.pop(prefix + name, torch.empty(0)) for name in state}
    if unfit := [name for name in state if loaded[name].shape != state[name].shape]:
        lacking = f"{prefix}{unfit[0]} of shape {[*state[unfit[0]].shape]} ({len(unfit)} missing)"
        raise UserError(f"{file}: its weights lack {lacking}: is it another model than the backbone, or damaged?")
    model.load_state_dict(loaded)
    log.info("%s: %d weights %s*; not in the backbone: %s", file, len(state), prefix, ", ".join(weights) or "none")
