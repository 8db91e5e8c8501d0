"""Poolings: from the hidden states of a transformer to one vector per sentence.

A pooling reduces the tokens of a layer to one vector, and averages over the layers that it reads. `cls`, `mean`,
`first_last` and `top2` are those of Table 6 of the paper. Others come from WhiteningBERT (`layers_1_2_12`; Huang et al.
2021), PromptBERT (`mask`; Jiang et al. 2022), SGPT (`weighted_mean`; Muennighoff 2022), Ditto (`ditto_1_10`, over the
embedding layer and the last one as in its released code; Chen et al. 2023), NV-Embed (`latent_attention`; Lee et al.
2024) and sentence-transformers (`weighted_layers_4`).

The reductions are functions of plain tensors, the states [batch, tokens, dim] of a layer and a mask [batch, tokens], 1
for the tokens to read and 0 for others:

    >>> mean_over_tokens(states, attention_mask)  # [batch, dim]
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from simcse_pl.models.tokenization import SENTENCE_MASK
from simcse_pl.utils.code import locate, optional
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.tensors import at_least_float32
from simcse_pl.utils.types import Backbone, Batch

if TYPE_CHECKING:
    from simcse_pl.models.other_poolings import CustomPooling

Inputs = Mapping[str, Tensor]  # the tokenizer's tensors, each [batch, tokens]; some poolings also need `sentence_mask`
RunBackbone = Callable[[Backbone, Batch], tuple[tuple[Tensor, ...], Batch]]
PoolingFunction = Callable[[Sequence[Tensor], Inputs], Tensor]  # a user's function or module


def first_token(states: Tensor, mask: Tensor) -> Tensor:
    """Return the vector of the first token, [CLS], whatever the mask."""
    return states[:, 0]


def last_token(states: Tensor, mask: Tensor) -> Tensor:
    """Return the vector of the last token of the mask; zeros for a sentence without tokens.

    Padding may be on the left or on the right.
    """
    positions = (mask.cumsum(dim=1) * mask).argmax(dim=1).view(-1, 1, 1).expand(-1, 1, states.shape[2])
    return states.gather(1, positions).squeeze(1).masked_fill(~mask.any(dim=1).unsqueeze(1), 0)


def mean_over_tokens(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the tokens of the mask; zeros for a sentence without tokens."""
    tokens = states.masked_fill(mask.unsqueeze(-1) == 0, 0)
    total = tokens.sum(dim=1, dtype=torch.promote_types(states.dtype, torch.float32))  # the sum may overflow float16
    return (total / mask.sum(dim=1, keepdim=True).clamp(min=1)).to(states.dtype)


def weighted_mean_over_tokens(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the tokens of the mask, the n-th with weight n; zeros for a sentence without tokens."""
    tokens = at_least_float32(states.masked_fill(mask.unsqueeze(-1) == 0, 0))
    positions = mask.cumsum(dim=1) * mask
    weights = positions.to(tokens.dtype) / positions.sum(dim=1, keepdim=True).clamp(min=1)
    return (tokens * weights.unsqueeze(-1)).sum(dim=1).to(states.dtype)


def max_over_tokens(states: Tensor, mask: Tensor) -> Tensor:
    """Return the maximum of each dimension over the tokens of the mask; zeros for a sentence without tokens."""
    padding = mask.unsqueeze(-1) == 0
    largest = states.masked_fill(padding, torch.finfo(states.dtype).min).amax(dim=1)
    return largest.masked_fill(padding.all(dim=1), 0)


class Pooling(nn.Module):
    """A reduction of tokens to one vector, averaged over layers.

    Args:
        over_tokens: a function of the states [batch, tokens, dim] of a layer and a mask [batch, tokens] that returns
            [batch, dim].
        layers: 0 is the output of the embedding layer, n that of the n-th transformer layer, -1 the last.
        mask_of: a function of the tokenizer's tensors [batch, tokens] that returns the mask. None reads all tokens but
            padding; any other one gets a `sentence_mask`, too (see templates.py).
        masks: the number of mask tokens that a template must have.
        run: a function that runs the backbone in place of `run_backbone`, with eager attention, and returns further
            tensors for `mask_of`, too.
        weighted: train a weight for each layer in their mean; at first, all are equal.
    """

    def __init__(
        self,
        over_tokens: Callable[[Tensor, Tensor], Tensor],
        layers: tuple[int, ...] = (-1,),
        mask_of: Callable[[Inputs], Tensor] | None = None,
        masks: int = 0,
        run: RunBackbone | None = None,
        weighted: bool = False,
    ) -> None:
        super().__init__()
        self.layer_weights = nn.Parameter(torch.ones(len(layers))) if weighted else None
        self.over_tokens, self.layers, self.mask_of, self.masks = over_tokens, layers, mask_of, masks
        self.reads_sentence_mask, self.run = mask_of is not None, run

    def forward(self, hidden_states: Sequence[Tensor], inputs: Inputs) -> Tensor:
        """Return the vectors of a batch.

        Args:
            hidden_states: the outputs of the embedding layer and of each transformer layer in order, each
                [batch, tokens, dim]; only the last one if `layers` is (-1,).
            inputs: the tokenizer's tensors, each [batch, tokens].

        Returns:
            [batch, dim].
        """
        mask = self.mask_of(inputs) if self.mask_of else inputs["attention_mask"]
        if len(self.layers) == 1 and self.layer_weights is None:
            return self.over_tokens(hidden_states[self.layers[0]], mask)
        vectors = torch.stack([self.over_tokens(hidden_states[n], mask) for n in self.layers])
        if self.layer_weights is None:
            return at_least_float32(vectors).mean(dim=0).to(vectors.dtype)
        shares = self.layer_weights / self.layer_weights.sum()
        return (shares.view(-1, 1, 1) * at_least_float32(vectors)).sum(dim=0)


POOLINGS = {
    "cls": partial(Pooling, first_token),
    "mean": partial(Pooling, mean_over_tokens),
    "first_last": partial(Pooling, mean_over_tokens, layers=(1, -1)),  # not the word embeddings, which are layer 0
    "first_last_embedding": partial(Pooling, mean_over_tokens, layers=(0, -1)),
    "top2": partial(Pooling, mean_over_tokens, layers=(-2, -1)),
    "max": partial(Pooling, max_over_tokens),
    "last_token": partial(Pooling, last_token),
    "weighted_mean": partial(Pooling, weighted_mean_over_tokens),
    "span": partial(Pooling, mean_over_tokens, mask_of=itemgetter(SENTENCE_MASK)),
}
_FAMILIES = {  # by pattern: functions of simcse_pl, of the config, the mask token's id and the pattern's groups
    "pooler": "models.other_poolings.PoolerOutput",
    r"mask(?:_([1-9][0-9]?))?": "models.other_poolings.mask_token",
    r"last_token_([1-9][0-9]{0,3})": "models.other_poolings.last_token_of_layer",
    r"weighted_layers_(0|[1-9][0-9]{0,3})": "models.other_poolings.weighted_layers",
    r"layers((?:_(?:0|[1-9][0-9]{0,3}))+)": "models.other_poolings.mean_of_layers",
    r"latent_attention(?:_([1-9][0-9]{0,4}))?": "methods.latent_attention.make_pooling",
    r"ditto_([1-9][0-9]{0,2})_([1-9][0-9]{0,2})": "methods.ditto.make_pooling",
}
CHOICES = (
    f"{', '.join(POOLINGS)}, pooler, latent_attention, mask, mask_2, layers like layers_1_2, last_token_2 or "
    "weighted_layers_1, a head of attention like ditto_1_10, several like cls+mean, or the dotted name of a function "
    "or a module"
)


def find_pooling(
    name: str | PoolingFunction, config: PreTrainedConfig, mask_token_id: int | None = None
) -> "Pooling | CustomPooling":
    """Return a new pooling by its name.

    Args:
        name: one of `CHOICES`, whose numbers are examples; or a function or a module (see `CustomPooling`).
            `latent_attention_64` has 64 latents in place of 512, `mask_2` is the second mask token, and `ditto_1_10`
            counts layers and heads from 1. `cls+mean` concatenates poolings. A dotted name is imported; if it is that
            of a class, the class gets the backbone's config.
        config: the backbone's config.
        mask_token_id: the tokenizer's, or None.
    """
    if not isinstance(name, str):
        custom: CustomPooling = optional("models.other_poolings.CustomPooling")(name)
        return custom
    if "+" in name:
        if "pooler" in (parts := name.split("+")):
            raise UserError(f"pooling={name}: the weights of a pooler are loaded for pooling=pooler alone")
        poolings = [find_pooling(part, config, mask_token_id) for part in parts]
        joined: CustomPooling = optional("models.other_poolings.Concatenation")(poolings)
        return joined
    if is_dotted(name):
        with reraise_as(f"pooling={name}"):
            function = locate(name)
            return find_pooling(function(config) if isinstance(function, type) else function, config)
    pooling = POOLINGS[name]() if name in POOLINGS else _of_family(name, config, mask_token_id)
    layers = config.num_hidden_layers
    if max(*pooling.layers, -min(pooling.layers)) > layers:
        raise UserError(f"pooling={name}: the model has layers 1 to {layers}, and 0, its embeddings")
    return pooling


def _of_family(name: str, config: PreTrainedConfig, mask_token_id: int | None) -> Pooling:
    """Return a pooling whose name contains numbers, or whose weights are loaded or trained."""
    for pattern, function in _FAMILIES.items():
        if match := re.fullmatch(pattern, name):
            pooling: Pooling = optional(function)(config, mask_token_id, *match.groups())
            return pooling
    raise UserError(f"pooling={name}: choose one of {CHOICES}")


def name_of(pooling: str | PoolingFunction) -> str:
    """Return the name of a pooling that is saved: its own, or the dotted name of a function or of a module's class."""
    if isinstance(pooling, str):
        return pooling
    named = pooling if hasattr(pooling, "__qualname__") else type(pooling)
    return f"{named.__module__}.{named.__qualname__}"


def is_dotted(name: str) -> bool:
    """Return whether a pooling's name is the dotted name of a function or a class, or contains one."""
    return "." in name
