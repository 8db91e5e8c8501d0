"""Poolings: from the hidden states of a transformer to one vector a sentence (Table 6 of the paper).

Each takes `hidden_states`, the outputs of the embedding layer and of every transformer layer in order,
each [batch, tokens, dim], and `attention_mask` [batch, tokens], 1 on tokens and 0 on padding;
each returns [batch, dim]. Those not named in `USES_ALL_LAYERS` look at the last layer alone.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Pooling = Callable[[Sequence[Tensor], Tensor], Tensor]


def masked_mean(states: Tensor, attention_mask: Tensor) -> Tensor:
    """The mean of `states` [batch, tokens, dim] over the tokens that are not padding."""
    weights = attention_mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def cls(hidden_states: Sequence[Tensor], attention_mask: Tensor) -> Tensor:
    """The last layer's vector of the first token, [CLS]."""
    return hidden_states[-1][:, 0]


def mean(hidden_states: Sequence[Tensor], attention_mask: Tensor) -> Tensor:
    """The mean over the tokens of the last layer."""
    return masked_mean(hidden_states[-1], attention_mask)


def max_over_tokens(hidden_states: Sequence[Tensor], attention_mask: Tensor) -> Tensor:
    """The largest value over the tokens of the last layer, dimension by dimension."""
    padding = attention_mask.unsqueeze(-1) == 0
    return hidden_states[-1].masked_fill(padding, torch.finfo(hidden_states[-1].dtype).min).amax(dim=1)


def first_last(hidden_states: Sequence[Tensor], attention_mask: Tensor) -> Tensor:
    """The mean over the tokens of the first and last transformer layers, averaged.

    The first layer is layer 1, not the word embeddings, which are `hidden_states[0]`.
    """
    return masked_mean((hidden_states[1] + hidden_states[-1]) / 2, attention_mask)


def top2(hidden_states: Sequence[Tensor], attention_mask: Tensor) -> Tensor:
    """The mean over the tokens of the last two transformer layers, averaged."""
    return masked_mean((hidden_states[-2] + hidden_states[-1]) / 2, attention_mask)


POOLINGS: dict[str, Pooling] = {
    "cls": cls,
    "mean": mean,
    "first_last": first_last,
    "top2": top2,
    "max": max_over_tokens,
}

USES_ALL_LAYERS = frozenset({"first_last", "top2"})
