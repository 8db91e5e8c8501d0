"""Run a backbone for what a pooling reads: the states of its layers, and its attention."""

import torch
from torch import Tensor

from simcse_pl.models.tokenization import BEGINS_WORD, SENTENCE_MASK
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Backbone, Batch

SELF_ATTENTION = "self_attention"  # of each token to itself, [batch, layers, heads, tokens]


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
