"""Changes of a backbone that few runs ask for: fewer layers, other dropout, no causal mask, new layers."""

import torch
from torch import nn
from transformers import PreTrainedConfig

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Backbone

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
    of_attention = [rate for rate in _ATTENTION_DROPOUT if rate in rates]
    if attention_dropout is None and of_attention:
        attention_dropout = dropout
    options = {"dropout": (dropout, hidden), "attention_dropout": (attention_dropout, of_attention)}
    for option, (value, known) in options.items():
        if value is None:
            continue
        if not known:
            raise UserError(f"{option}={value}: {name} ({config.model_type}) has no such dropout")
        for rate in known:
            setattr(config, rate, float(value))


def keep_layers(config: PreTrainedConfig, num_layers: int) -> None:
    """Reduce a config to the first layers."""
    config.num_hidden_layers = num_layers
    if getattr(config, "layer_types", None):  # ModernBERT, Gemma
        config.layer_types = config.layer_types[:num_layers]


@torch.no_grad()
def check_bidirectional(model: Backbone) -> None:
    """Raise UserError if the state of a token does not depend on the tokens after it."""
    ones = torch.ones(1, 4, dtype=torch.int64, device=model.device)
    changed = ones.clone()
    changed[0, -1] = 0
    model.eval()
    first, second = (model(input_ids=ids, attention_mask=ones).last_hidden_state[0, 0] for ids in (ones, changed))
    if torch.equal(first, second):
        raise UserError(f"bidirectional=true: the causal mask of {model.config.model_type} cannot be switched off")


def copy_last_layers(model: Backbone, other: Backbone, number: int) -> None:
    """Copy the weights of the last layers of another model of the same architecture."""
    layers, others = (next(x for x in net.modules() if isinstance(x, nn.ModuleList)) for net in (model, other))
    layers[-number:].load_state_dict(others[-number:].state_dict())
