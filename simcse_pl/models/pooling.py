"""Poolings: from the hidden states of a transformer to one vector per sentence.

A pooling reduces the tokens of a layer to one vector, and averages over the layers that it reads. `cls`, `mean`,
`first_last` and `top2` are those of Table 6 of the paper. `pooler` is the output of BERT's own pooler. `layers_1_2_12`
and the like, any set of layers, come from WhiteningBERT (Huang et al. 2021), `mask` from PromptBERT (Jiang et al.
2022), and `weighted_mean` from SGPT (Muennighoff 2022). `ditto_1_10`, any layer and head, is the sum of tokens weighted
by their attention to themselves (Chen et al. 2023), over the embedding layer and the last one as in the released code.
`latent_attention` is NV-Embed's. `cls+mean` concatenates poolings.

The reductions are functions of plain tensors, the states [batch, tokens, dim] of a layer and a mask [batch, tokens], 1
for the tokens to read and 0 for others:

    >>> mean_over_tokens(states, attention_mask)  # [batch, dim]
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from simcse_pl.models.backbone import SELF_ATTENTION
from simcse_pl.models.latent_attention import LatentAttention
from simcse_pl.models.tokenization import SENTENCE_MASK
from simcse_pl.utils.code import locate
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.tensors import at_least_float32

Inputs = Mapping[str, Tensor]  # the tokenizer's tensors, each [batch, tokens]; some poolings also need `sentence_mask`
PoolingFunction = Callable[[Sequence[Tensor], Inputs], Tensor]  # a user's function or module; see `CustomPooling`


def first_token(states: Tensor, mask: Tensor) -> Tensor:
    """Return the vector of the first token, [CLS], whatever the mask."""
    return states[:, 0]


def last_token(states: Tensor, mask: Tensor) -> Tensor:
    """Return the vector of the last token of the mask; zeros for a sentence without tokens.

    Padding may be on the left or on the right.
    """
    places = (mask.cumsum(dim=1) * mask).argmax(dim=1).view(-1, 1, 1).expand(-1, 1, states.shape[2])
    return states.gather(1, places).squeeze(1).masked_fill(~mask.any(dim=1).unsqueeze(1), 0)


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


def sum_over_tokens(states: Tensor, weights: Tensor) -> Tensor:
    """Return the sum over tokens times their weights [batch, tokens]; tokens of weight 0 are ignored."""
    tokens = at_least_float32(states.masked_fill(weights.unsqueeze(-1) == 0, 0))
    return (tokens * weights.unsqueeze(-1)).sum(dim=1).to(states.dtype)


def self_attention(inputs: Inputs, layer: int, head: int) -> Tensor:
    """Return the attention of each token to itself by a head of a layer, both counted from 1; 0 for padding."""
    return inputs[SELF_ATTENTION][:, layer - 1, head - 1] * inputs["attention_mask"]


def nth_mask_token(inputs: Inputs, mask_token_id: int, number: int) -> Tensor:
    """Return the mask of a template's mask token, counted from 1.

    A mask token in the sentence itself does not count if the inputs have a `sentence_mask`.
    """
    masks: Tensor = inputs["input_ids"] == mask_token_id
    if SENTENCE_MASK in inputs:
        masks = masks & (inputs[SENTENCE_MASK] == 0)
    return (masks & (masks.cumsum(dim=1) == number)).long()


class Pooling(nn.Module):
    """A reduction of tokens to one vector, averaged over layers.

    Args:
        over_tokens: a function of the states [batch, tokens, dim] of a layer and a mask [batch, tokens] that returns
            [batch, dim].
        layers: 0 is the output of the embedding layer, n that of the n-th transformer layer, -1 the last.
        mask_of: a function of the tokenizer's tensors [batch, tokens] that returns the mask. None reads all tokens but
            padding; any other one gets a `sentence_mask`, too (see templates.py).
        masks: the number of mask tokens that a template must have.
        reads_attention: whether `mask_of` gets `SELF_ATTENTION`, too (see `run_with_attention`).
    """

    def __init__(
        self,
        over_tokens: Callable[[Tensor, Tensor], Tensor],
        layers: tuple[int, ...] = (-1,),
        mask_of: Callable[[Inputs], Tensor] | None = None,
        masks: int = 0,
        reads_attention: bool = False,
    ) -> None:
        super().__init__()
        self.over_tokens, self.layers, self.mask_of, self.masks = over_tokens, layers, mask_of, masks
        self.reads_sentence_mask, self.reads_attention = mask_of is not None, reads_attention

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
        if len(self.layers) == 1:
            return self.over_tokens(hidden_states[self.layers[0]], mask)
        vectors = torch.stack([self.over_tokens(hidden_states[n], mask) for n in self.layers])
        return at_least_float32(vectors).mean(dim=0).to(vectors.dtype)


class PoolerOutput(Pooling):
    """The output of the backbone's own pooler: Linear and Tanh of [CLS], pretrained by next-sentence prediction.

    The weights are random until those of a checkpoint are loaded.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(first_token)
        self.dense = nn.Linear(dim, dim)

    def forward(self, hidden_states: Sequence[Tensor], inputs: Inputs) -> Tensor:
        """Return the vectors of a batch, [batch, dim]; see `Pooling.forward`."""
        return torch.tanh(self.dense(at_least_float32(super().forward(hidden_states, inputs))))


class LatentAttentionPooling(Pooling):
    """The mean over tokens after a trained layer of attention; `options` are those of LatentAttention."""

    def __init__(self, config: PreTrainedConfig, **options: int) -> None:
        super().__init__(mean_over_tokens)
        self.attention = LatentAttention(config.hidden_size, **options)

    def forward(self, hidden_states: Sequence[Tensor], inputs: Inputs) -> Tensor:
        """Return the vectors of a batch, [batch, dim]; see `Pooling.forward`."""
        return super().forward([self.attention(at_least_float32(hidden_states[-1]))], inputs)


class CustomPooling(nn.Module):
    """A user's function or module, such as attention over tokens. Its vectors may have any width.

    The weights of a module are trained and saved with the encoder.

    Args:
        function: see `Pooling.forward`. It gets the outputs of all layers, and the inputs with a `sentence_mask`.
    """

    layers: tuple[int, ...] | None = None
    masks, reads_sentence_mask, reads_attention = 0, True, False

    def __init__(self, function: PoolingFunction) -> None:
        super().__init__()
        self.function = function

    def forward(self, hidden_states: Sequence[Tensor], inputs: Inputs) -> Tensor:
        """Return the vectors of a batch, [batch, width]."""
        return self.function(hidden_states, inputs)


class Concatenation(CustomPooling):
    """The vectors of several poolings, one after the other."""

    def __init__(self, parts: Sequence[Pooling | CustomPooling]) -> None:
        nn.Module.__init__(self)
        self.parts = nn.ModuleList(parts)
        if all(part.layers == (-1,) for part in parts):
            self.layers = (-1,)
        self.masks = max(part.masks for part in parts)
        self.reads_sentence_mask = any(part.reads_sentence_mask for part in parts)
        self.reads_attention = any(part.reads_attention for part in parts)

    def forward(self, hidden_states: Sequence[Tensor], inputs: Inputs) -> Tensor:
        """Return the vectors of a batch, [batch, the sum of the widths]."""
        return torch.cat([part(hidden_states, inputs) for part in self.parts], dim=1)


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
CHOICES = (
    f"{', '.join(POOLINGS)}, pooler, latent_attention, mask, mask_2, layers like layers_1_2 or last_token_2, a head of "
    "attention like ditto_1_10, several like cls+mean, or the dotted name of a function or a module"
)


def find_pooling(
    name: str | PoolingFunction, config: PreTrainedConfig, mask_token_id: int | None = None
) -> Pooling | CustomPooling:
    """Return a new pooling by its name.

    Args:
        name: one of `POOLINGS`; `pooler`; `latent_attention`, or `latent_attention_64` for 64 latents in place of 512;
            `mask`, or `mask_2` for the second mask token and so on; `layers_` and the numbers of layers, as in
            `layers_1_12`; `last_token_` and the number of a layer; `ditto_` and the numbers of a layer and a head, from
            1; names joined by +; a function or a module (see `CustomPooling`); or the dotted name of a function or of a
            class of modules, which is imported. A class gets the backbone's config.
        config: the backbone's config.
        mask_token_id: the tokenizer's, or None.

    Raises:
        UserError: an unknown name, or a layer, a head or a function that does not exist.
    """
    if not isinstance(name, str):
        return CustomPooling(name)
    if "+" in name:
        if "pooler" in (parts := name.split("+")):
            raise UserError(f"pooling={name}: the weights of a pooler are loaded for pooling=pooler alone")
        return Concatenation([find_pooling(part, config, mask_token_id) for part in parts])
    if is_dotted(name):
        with reraise_as(f"pooling={name}"):
            function = locate(name)
            return CustomPooling(function(config) if isinstance(function, type) else function)
    layers = config.num_hidden_layers
    if name in POOLINGS:
        pooling = POOLINGS[name]()
    elif name == "pooler":
        pooling = PoolerOutput(config.hidden_size)
    elif match := re.fullmatch(r"latent_attention(?:_([1-9][0-9]{0,4}))?", name):
        pooling = LatentAttentionPooling(config, latents=int(match[1] or 512))
    elif match := re.fullmatch(r"ditto_([1-9][0-9]{0,2})_([1-9][0-9]{0,2})", name):
        layer, head = int(match[1]), int(match[2])
        if layer > layers or head > config.num_attention_heads:
            raise UserError(f"pooling={name}: the model has {layers} layers of {config.num_attention_heads} heads")
        mask_of = partial(self_attention, layer=layer, head=head)
        pooling = Pooling(sum_over_tokens, (0, -1), mask_of, reads_attention=True)
    elif match := re.fullmatch(r"mask(?:_([1-9][0-9]?))?", name):
        number = int(match[1] or 1)
        mask_of = partial(nth_mask_token, mask_token_id=-1 if mask_token_id is None else mask_token_id, number=number)
        pooling = Pooling(last_token, mask_of=mask_of, masks=number)
    elif match := re.fullmatch(r"last_token_([1-9][0-9]{0,3})", name):
        pooling = Pooling(last_token, (int(match[1]),))
    elif re.fullmatch(r"layers(_(0|[1-9][0-9]{0,3}))+", name):
        pooling = Pooling(mean_over_tokens, tuple(int(number) for number in name.split("_")[1:]))
    else:
        raise UserError(f"pooling={name}: choose one of {CHOICES}")
    if max(*pooling.layers, -min(pooling.layers)) > layers:
        raise UserError(f"pooling={name}: the model has layers 1 to {layers}, and 0, its embeddings")
    return pooling


def name_of(pooling: str | PoolingFunction) -> str:
    """Return the name of a pooling that is saved: its own, or the dotted name of a function or of a module's class."""
    if isinstance(pooling, str):
        return pooling
    named = pooling if hasattr(pooling, "__qualname__") else type(pooling)
    return f"{named.__module__}.{named.__qualname__}"


def is_dotted(name: str) -> bool:
    """Return whether a pooling's name is the dotted name of a function or a class, or contains one."""
    return any("." in part and all(word.isidentifier() for word in part.split(".")) for part in name.split("+"))
