"""Poolings: from the hidden states of a transformer to one vector per sentence.

A pooling reduces the tokens of a layer to one vector, and averages over the layers that it reads. The named
poolings are those of Table 6 of the paper. `layers_1_2_12` and the like, any set of layers, come from
WhiteningBERT (Huang et al. 2021).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import at_least_float32

OverTokens = Callable[[Tensor, Tensor], Tensor]


def first_token(states: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the vector of the first token, [CLS]."""
    return states[:, 0]


def mean_over_tokens(states: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the mean over all tokens but padding; zeros for a sentence without tokens."""
    tokens = states.masked_fill(attention_mask.unsqueeze(-1) == 0, 0)
    total = tokens.sum(dim=1, dtype=torch.promote_types(states.dtype, torch.float32))  # the sum may overflow float16
    return (total / attention_mask.sum(dim=1, keepdim=True).clamp(min=1)).to(states.dtype)


def max_over_tokens(states: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the maximum of each dimension over all tokens but padding; zeros for a sentence without tokens."""
    padding = attention_mask.unsqueeze(-1) == 0
    largest = states.masked_fill(padding, torch.finfo(states.dtype).min).amax(dim=1)
    return largest.masked_fill(padding.all(dim=1), 0)


@dataclass(frozen=True)
class Pooling:
    """A reduction of tokens to one vector, averaged over layers.

    Args:
        over_tokens: a function of `states` [batch, tokens, dim] and `attention_mask` [batch, tokens] (1 for
            tokens, 0 for padding) that returns [batch, dim].
        layers: 0 is the output of the embedding layer, n that of the n-th transformer layer, -1 the last.
    """

    over_tokens: OverTokens
    layers: tuple[int, ...] = (-1,)

    @property
    def reads_last_layer_alone(self) -> bool:
        """Return whether no other layer is read."""
        return self.layers == (-1,)

    def __call__(self, hidden_states: Sequence[Tensor], attention_mask: Tensor) -> Tensor:
        """Return the vectors of a batch.

        Args:
            hidden_states: the outputs of the embedding layer and of each transformer layer in order, each
                [batch, tokens, dim]; only the last one if `reads_last_layer_alone`.
            attention_mask: [batch, tokens].

        Returns:
            [batch, dim].
        """
        vectors = torch.stack([self.over_tokens(hidden_states[n], attention_mask) for n in self.layers])
        return at_least_float32(vectors).mean(dim=0).to(vectors.dtype)


POOLINGS = {
    "cls": Pooling(first_token),
    "mean": Pooling(mean_over_tokens),
    "first_last": Pooling(mean_over_tokens, layers=(1, -1)),  # not the word embeddings, which are layer 0
    "top2": Pooling(mean_over_tokens, layers=(-2, -1)),
    "max": Pooling(max_over_tokens),
}
CHOICES = f"{', '.join(POOLINGS)}, or layers like layers_1_2"


def find_pooling(name: str, num_layers: int) -> Pooling:
    """Return a pooling by its name.

    Args:
        name: one of `POOLINGS`, or `layers_` and the numbers of layers, as in `layers_1_12`.
        num_layers: the number of transformer layers.

    Raises:
        UserError: an unknown name, a layer named twice, or a layer that does not exist.
    """
    if name == "top2" and num_layers < 2:
        raise UserError("pooling=top2: the model has one layer only")
    if name in POOLINGS:
        return POOLINGS[name]
    if not re.fullmatch(r"layers(_(0|[1-9][0-9]{0,3}))+", name):
        raise UserError(f"pooling={name}: choose one of {CHOICES}")
    layers = tuple(int(number) for number in name.split("_")[1:])
    if len(set(layers)) < len(layers):
        raise UserError(f"pooling={name}: name each layer once")
    if max(layers) > num_layers:
        raise UserError(f"pooling={name}: the model has layers 1 to {num_layers}, and 0, its embeddings")
    return Pooling(mean_over_tokens, layers)
