"""Masked language models with their pretrained heads, and the words that they mask."""

import logging
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedConfig
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.backbone import load_weights, use_sdpa
from simcse_pl.models.sources import load_config, loading
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Backbone

log = logging.getLogger(__name__)


def load_masked_language_model(
    name: str, config: PreTrainedConfig | None = None, auto: Any = AutoModelForMaskedLM
) -> Backbone:
    """Load a masked language model in float32 with its pretrained head, in evaluation mode.

    `name` is one for `resolve`; `config` replaces the checkpoint's; `auto` is transformers' class of the model. Raise
    UserError if there is no such head.
    """
    with loading(name) as source, torch.random.fork_rng(devices=[]):
        model, missing = load_weights(auto, source, config or load_config(source))
    if missing:
        raise UserError(f"{name} has no language-model head (no {missing[0]})")
    use_sdpa(model)
    return model


def pretrained_transform(name: str) -> dict[str, Tensor]:
    """Return a state dict for the head `transform`: the weights before the decoder of a masked language model.

    It is empty, with a warning, if the checkpoint has no such weights. `name` is one for `resolve`.
    """
    try:
        model = load_masked_language_model(name)
        parts = [part for key, part in model.named_modules() if not key.startswith(model.base_model_prefix)]
        linear = next(part for part in parts if isinstance(part, nn.Linear) and part.in_features == part.out_features)
        norm = next(part for part in parts if isinstance(part, nn.LayerNorm))
    except (UserError, StopIteration) as error:
        reason = str(error) or f"the head of {type(model).__name__} has another form"
        log.warning("head=transform: %s; its weights are drawn at random", reason)
        return {}
    weights: dict[str, Tensor] = {}
    for i, part in ((0, linear), (2, norm)):
        bias = torch.zeros(len(part.weight)) if part.bias is None else part.bias  # ModernBERT has none
        weights |= {f"{i}.weight": part.weight.detach(), f"{i}.bias": bias.detach()}
    return weights


def begins_word(tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return which tokens of a vocabulary begin a word, [vocabulary] bool.

    The tokens show it by the mark of WordPiece (`##`, inside a word), of byte-level BPE (`Ġ`, begins a word) or of
    SentencePiece (`▁`, begins a word). Raise UserError if they have none of these marks.
    """
    ids = tokenizer.get_vocab()
    marks = {mark: sum(token.startswith(mark) for token in ids) for mark in ("##", "Ġ", "▁")}
    mark = max(marks, key=lambda mark: marks[mark])
    if not marks[mark]:
        raise UserError(f"the tokenizer of {tokenizer.name_or_path} does not mark where words begin")
    begins = torch.zeros(max(ids.values()) + 1, dtype=torch.bool)
    begins[[number for token, number in ids.items() if token.startswith(mark) != (mark == "##")]] = True
    return begins
