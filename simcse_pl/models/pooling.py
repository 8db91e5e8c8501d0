"""Poolings: from the hidden states of a transformer to one vector per sentence.

A pooling reduces the tokens of a layer to one vector, and averages over the layers that it reads. `cls`, `mean`,
`first_last` and `top2` are those of Table 6 of the paper. `layers_1_2_12` and the like, any set of layers, come from
WhiteningBERT (Huang et al. 2021), `mask` from PromptBERT (Jiang et al. 2022), and `weighted_mean` from SGPT
(Muennighoff 2022).
"""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from simcse_pl.models.templates import SENTENCE_MASK
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.tensors import at_least_float32

Inputs = Mapping[str, Tensor]  # the tokenizer's tensors, each [batch, tokens]; some poolings also need `sentence_mask`
OverTokens = Callable[[Tensor, Inputs], Tensor]


def first_token(states: Tensor, inputs: Inputs) -> Tensor:
    """Return the vector of the first token, [CLS]."""
    return states[:, 0]


def last_token(states: Tensor, inputs: Inputs) -> Tensor:
    """Return the vector of the last token that is not padding; zeros for a sentence without tokens.

    Padding may be on the left or on the right.
    """
    mask = inputs["attention_mask"]
    return _chosen_token(states, mask.cumsum(dim=1) * mask, mask.any(dim=1))


def nth_mask_token(states: Tensor, inputs: Inputs, mask_token_id: int, number: int) -> Tensor:
    """Return the vector of a template's mask token, counted from 1; zeros if there are fewer.

    A mask token in the sentence itself does not count if the inputs have a `sentence_mask`.
    """
    masks = inputs["input_ids"] == mask_token_id
    if SENTENCE_MASK in inputs:
        masks = masks & (inputs[SENTENCE_MASK] == 0)
    chosen = masks & (masks.cumsum(dim=1) == number)
    return _chosen_token(states, chosen.long(), chosen.any(dim=1))


def _chosen_token(states: Tensor, scores: Tensor, exists: Tensor) -> Tensor:
    """Return the vector of the token with the highest score; zeros where no token exists."""
    places = scores.argmax(dim=1).view(-1, 1, 1).expand(-1, 1, states.shape[2])
    return states.gather(1, places).squeeze(1).masked_fill(~exists.unsqueeze(1), 0)


def mean_over_tokens(states: Tensor, inputs: Inputs) -> Tensor:
    """Return the mean over all tokens but padding; zeros for a sentence without tokens."""
    return _mean(states, inputs["attention_mask"])


def mean_over_sentence(states: Tensor, inputs: Inputs) -> Tensor:
    """Return the mean over the sentence's own tokens, without special tokens and template; zeros if it has none."""
    if SENTENCE_MASK not in inputs:
        raise UserError("pooling=span: the inputs have no sentence_mask; make them with encoder.templates.batch")
    return _mean(states, inputs[SENTENCE_MASK])


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    tokens = states.masked_fill(mask.unsqueeze(-1) == 0, 0)
    total = tokens.sum(dim=1, dtype=torch.promote_types(states.dtype, torch.float32))  # the sum may overflow float16
    return (total / mask.sum(dim=1, keepdim=True).clamp(min=1)).to(states.dtype)


def weighted_mean_over_tokens(states: Tensor, inputs: Inputs) -> Tensor:
    """Return the mean over all tokens but padding, the n-th with weight n; zeros for a sentence without tokens."""
    mask = inputs["attention_mask"]
    tokens = at_least_float32(states.masked_fill(mask.unsqueeze(-1) == 0, 0))
    positions = mask.cumsum(dim=1) * mask
    weights = positions.to(tokens.dtype) / positions.sum(dim=1, keepdim=True).clamp(min=1)
    return (tokens * weights.unsqueeze(-1)).sum(dim=1).to(states.dtype)


def max_over_tokens(states: Tensor, inputs: Inputs) -> Tensor:
    """Return the maximum of each dimension over all tokens but padding; zeros for a sentence without tokens."""
    padding = inputs["attention_mask"].unsqueeze(-1) == 0
    largest = states.masked_fill(padding, torch.finfo(states.dtype).min).amax(dim=1)
    return largest.masked_fill(padding.all(dim=1), 0)


@dataclass(frozen=True)
class Pooling:
    """A reduction of tokens to one vector, averaged over layers.

    Args:
        over_tokens: a function of `states` [batch, tokens, dim] and the tokenizer's tensors [batch, tokens] that
            returns [batch, dim]. `attention_mask` is 1 for tokens and 0 for padding.
        layers: 0 is the output of the embedding layer, n that of the n-th transformer layer, -1 the last.
        reads_sentence_mask: whether the inputs also need a `sentence_mask` (see templates.py).
        masks: the number of mask tokens that a template must have.
    """

    over_tokens: OverTokens
    layers: tuple[int, ...] = (-1,)
    reads_sentence_mask: bool = False
    masks: int = 0

    @property
    def reads_last_layer_alone(self) -> bool:
        """Return whether no other layer is read."""
        return self.layers == (-1,)

    def __call__(self, hidden_states: Sequence[Tensor], inputs: Inputs) -> Tensor:
        """Return the vectors of a batch.

        Args:
            hidden_states: the outputs of the embedding layer and of each transformer layer in order, each
                [batch, tokens, dim]; only the last one if `reads_last_layer_alone`.
            inputs: the tokenizer's tensors, each [batch, tokens].

        Returns:
            [batch, dim].
        """
        vectors = torch.stack([self.over_tokens(hidden_states[n], inputs) for n in self.layers])
        return at_least_float32(vectors).mean(dim=0).to(vectors.dtype)


@dataclass(frozen=True)
class OwnPooling:
    """A user's function of the outputs of all layers and the inputs, including `sentence_mask`, with a checked result.

    Args:
        name: its dotted name.
        function: see `Pooling.__call__`.
    """

    name: str
    function: Callable[[Sequence[Tensor], Inputs], Tensor]

    reads_last_layer_alone: ClassVar[bool] = False
    reads_sentence_mask: ClassVar[bool] = True
    masks: ClassVar[int] = 0

    def __call__(self, hidden_states: Sequence[Tensor], inputs: Inputs) -> Tensor:
        """Return the vectors of a batch; raise UserError unless they are [batch, dim]."""
        vectors = self.function(hidden_states, inputs)
        batch, _, dim = hidden_states[-1].shape
        if not isinstance(vectors, Tensor) or vectors.shape != (batch, dim):
            found = list(vectors.shape) if isinstance(vectors, Tensor) else type(vectors).__name__
            raise UserError(f"pooling={self.name}: it must return a tensor [{batch}, {dim}], not {found}")
        return vectors


POOLINGS = {
    "cls": Pooling(first_token),
    "mean": Pooling(mean_over_tokens),
    "first_last": Pooling(mean_over_tokens, layers=(1, -1)),  # not the word embeddings, which are layer 0
    "top2": Pooling(mean_over_tokens, layers=(-2, -1)),
    "max": Pooling(max_over_tokens),
    "last_token": Pooling(last_token),
    "weighted_mean": Pooling(weighted_mean_over_tokens),
    "span": Pooling(mean_over_sentence, reads_sentence_mask=True),
}
CHOICES = f"{', '.join(POOLINGS)}, mask, mask_2, layers like layers_1_2, or your own function's dotted name"


def find_pooling(name: str, num_layers: int, mask_token_id: int | None = None) -> Pooling | OwnPooling:
    """Return a pooling by its name.

    Args:
        name: one of `POOLINGS`; `mask`, or `mask_2` for the second mask token and so on; `layers_` and the numbers of
            layers, as in `layers_1_12`; or a function's dotted name, which is imported.
        num_layers: the number of transformer layers.
        mask_token_id: the tokenizer's, or None.

    Raises:
        UserError: an unknown name, a layer named twice, a layer or a function that does not exist, or the tokenizer
            has no mask token.
    """
    if name == "top2" and num_layers < 2:
        raise UserError("pooling=top2: the model has one layer only")
    if name in POOLINGS:
        return POOLINGS[name]
    if is_own(name):
        return OwnPooling(name, _import(name))
    if found := re.fullmatch(r"mask(?:_([1-9][0-9]?))?", name):
        if mask_token_id is None:
            raise UserError(f"pooling={name}: the tokenizer has no mask token; choose another pooling")
        number = int(found[1] or 1)
        over_tokens = partial(nth_mask_token, mask_token_id=mask_token_id, number=number)
        return Pooling(over_tokens, reads_sentence_mask=True, masks=number)
    if not re.fullmatch(r"layers(_(0|[1-9][0-9]{0,3}))+", name):
        raise UserError(f"pooling={name}: choose one of {CHOICES}")
    layers = tuple(int(number) for number in name.split("_")[1:])
    if len(set(layers)) < len(layers):
        raise UserError(f"pooling={name}: name each layer once")
    if max(layers) > num_layers:
        raise UserError(f"pooling={name}: the model has layers 1 to {num_layers}, and 0, its embeddings")
    return Pooling(mean_over_tokens, layers)


def is_own(name: str) -> bool:
    """Return whether a pooling's name is the dotted name of a function."""
    return "." in name and all(part.isidentifier() for part in name.split("."))


def _import(name: str) -> Callable[[Sequence[Tensor], Inputs], Tensor]:
    module, _, attribute = name.rpartition(".")
    with reraise_as(f"pooling={name}: cannot import it"):
        function: Callable[[Sequence[Tensor], Inputs], Tensor] = getattr(importlib.import_module(module), attribute)
    if not callable(function):
        raise UserError(f"pooling={name}: it is not a function")
    return function
