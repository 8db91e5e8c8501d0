"""Poolings that few runs use: the pooler's output, mask tokens, other layers, several poolings, functions of users."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from simcse_pl.models.pooling import (
    Inputs,
    Pooling,
    PoolingFunction,
    RunBackbone,
    first_token,
    last_token,
    mean_over_tokens,
)
from simcse_pl.models.tokenization import EXAMPLES, SENTENCE_MASK
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import at_least_float32


def nth_mask_token(inputs: Inputs, mask_token_id: int, number: int) -> Tensor:
    """Return the mask of a template's mask token, counted from 1.

    A mask token in the sentence itself does not count if the inputs have a `sentence_mask`.
    """
    masks: Tensor = inputs["input_ids"] == mask_token_id
    if SENTENCE_MASK in inputs:
        masks = masks & (inputs[SENTENCE_MASK] == 0)
    return (masks & (masks.cumsum(dim=1) == number)).long()


class PoolerOutput(Pooling):
    """The output of the backbone's own pooler: Linear and Tanh of [CLS], pretrained by next-sentence prediction.

    The weights are random until those of a checkpoint are loaded.
    """

    def __init__(self, config: PreTrainedConfig, _: int | None = None) -> None:
        super().__init__(first_token)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: Sequence[Tensor], inputs: Inputs) -> Tensor:
        return torch.tanh(self.dense(at_least_float32(super().forward(hidden_states, inputs))))


class CustomPooling(nn.Module):
    """A user's function or module, such as attention over tokens. Its vectors may have any width.

    The weights of a module are trained and saved with the encoder.

    Args:
        function: see `Pooling.forward`. It gets the outputs of all layers, and the inputs with a `sentence_mask`.
    """

    layers: tuple[int, ...] | None = None
    masks, reads_sentence_mask = 0, True
    run: RunBackbone | None = None

    def __init__(self, function: PoolingFunction) -> None:
        super().__init__()
        self.function = function

    def forward(self, hidden_states: Sequence[Tensor], inputs: Inputs) -> Tensor:
        return self.function(hidden_states, inputs)

    def checked_width(self, vectors: Tensor, name: str) -> int:
        """Return the width of the vectors of EXAMPLES; raise UserError if they are no vectors."""
        if vectors.dim() != 2 or len(EXAMPLES) != len(vectors):
            raise UserError(f"pooling={name}: it must return [batch, width], not {list(vectors.shape)}")
        return vectors.shape[1]


class Concatenation(CustomPooling):
    """The vectors of several poolings, one after the other."""

    def __init__(self, parts: Sequence[Pooling | CustomPooling]) -> None:
        nn.Module.__init__(self)
        self.parts = nn.ModuleList(parts)
        if all(part.layers for part in parts):
            self.layers = tuple({layer for part in parts for layer in part.layers or ()})
        self.masks = max(part.masks for part in parts)
        self.reads_sentence_mask = any(part.reads_sentence_mask for part in parts)
        self.run = next((part.run for part in parts if part.run), None)

    def forward(self, hidden_states: Sequence[Tensor], inputs: Inputs) -> Tensor:
        return torch.cat([part(hidden_states, inputs) for part in self.parts], dim=1)


def mask_token(_: PreTrainedConfig, mask_token_id: int | None, number: str | None) -> Pooling:
    """Return the pooling `mask`, or `mask_2` and so on: of a template's mask token."""
    token, masks = -1 if mask_token_id is None else mask_token_id, int(number or 1)
    return Pooling(last_token, mask_of=partial(nth_mask_token, mask_token_id=token, number=masks), masks=masks)


def last_token_of_layer(_: PreTrainedConfig, __: int | None, layer: str) -> Pooling:
    """Return the pooling `last_token_2` and so on."""
    return Pooling(last_token, (int(layer),))


def mean_of_layers(_: PreTrainedConfig, __: int | None, layers: str) -> Pooling:
    """Return the pooling `layers_1_2_12` and so on."""
    return Pooling(mean_over_tokens, tuple(int(number) for number in layers.split("_")[1:]))


def weighted_layers(config: PreTrainedConfig, _: int | None, first: str) -> Pooling:
    """Return the pooling `weighted_layers_4` and so on."""
    layers = range(int(first), max(config.num_hidden_layers, int(first)) + 1)  # the first one may not exist
    return Pooling(mean_over_tokens, tuple(layers), weighted=True)
