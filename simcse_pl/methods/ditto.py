"""Ditto (Chen et al. 2023): the sum of tokens weighted by their attention to themselves, by a head of a layer."""

from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from simcse_pl.models.backbone import backbone_inputs
from simcse_pl.models.pooling import Inputs, Pooling
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import at_least_float32
from simcse_pl.utils.types import Backbone, Batch

SELF_ATTENTION = "self_attention"  # of each token to itself, [batch, layers, heads, tokens]


def sum_over_tokens(states: Tensor, weights: Tensor) -> Tensor:
    """Return the sum over tokens times their weights [batch, tokens]; tokens of weight 0 are ignored."""
    tokens = at_least_float32(states.masked_fill(weights.unsqueeze(-1) == 0, 0))
    return (tokens * weights.unsqueeze(-1)).sum(dim=1).to(states.dtype)


def self_attention(inputs: Inputs, layer: int, head: int) -> Tensor:
    """Return the attention of each token to itself by a head of a layer, both counted from 1; 0 for padding."""
    return inputs[SELF_ATTENTION][:, layer - 1, head - 1] * inputs["attention_mask"]


def run_with_attention(backbone: Backbone, inputs: Batch) -> tuple[tuple[Tensor, ...], Batch]:
    """Return the states of `run_backbone`, and SELF_ATTENTION for the inputs of a pooling.

    Raise UserError if the backbone does not return its attention, for which its implementation must be eager.
    """
    inputs = backbone_inputs(inputs)
    outputs = backbone(**inputs, output_hidden_states=True, output_attentions=True)
    attentions = outputs.get("attentions") or ()
    if len(attentions) != backbone.config.num_hidden_layers or not all(torch.is_tensor(x) for x in attentions):
        raise UserError(f"{type(backbone).__name__} does not return its attention: choose another pooling than ditto")
    diagonals = torch.stack([attention.diagonal(dim1=2, dim2=3) for attention in attentions], dim=1)
    return outputs.hidden_states, {SELF_ATTENTION: diagonals}


def make_pooling(config: PreTrainedConfig, _: int | None, layer: str, head: str) -> Pooling:
    """Return the pooling of the name `ditto_LAYER_HEAD`; raise UserError if the model has no such head."""
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    if int(layer) > layers or int(head) > heads:
        raise UserError(f"pooling=ditto_{layer}_{head}: the model has {layers} layers of {heads} heads")
    mask_of = partial(self_attention, layer=int(layer), head=int(head))
    return Pooling(sum_over_tokens, (0, -1), mask_of, run=run_with_attention)
