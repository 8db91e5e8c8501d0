"""Sequences of like length through an encoder together: the same vectors, without most of the padding."""

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import PreTrainedModel

from simcse_pl.data.collators import Batch
from simcse_pl.models.backbone import word_embedding_layer

if TYPE_CHECKING:
    from simcse_pl.models.encoder import SentenceEncoder

# What one more pass costs, in tokens' worth of work: small products are slower, and every pass has gradients of all
# weights. Steps of the packaged encoder were fastest with 128 to 256.
_TOKENS_PER_PASS = 256


def longest_of_groups(lengths: Sequence[int]) -> list[int]:
    """Where to part lengths into groups, so that padding each to its own longest makes the least work.

    Work is counted in tokens, padding included, and a constant for every group: an encoder's products are linear in
    them, and of sentences attention is a small part.

    Args:
        lengths: of sequences, in any order; at least one.

    Returns:
        The longest of each group, ascending.
    """
    count = Counter(lengths)
    distinct = sorted(count)
    best: list[tuple[int, list[int]]] = [(0, [])]  # of the i shortest lengths: their work, and their groups
    for end in range(1, len(distinct) + 1):
        longest, sequences = distinct[end - 1], 0
        options = []
        for start in range(end - 1, -1, -1):
            sequences += count[distinct[start]]
            work, groups = best[start]
            options.append((work + sequences * longest + _TOKENS_PER_PASS, groups))
        work, groups = min(options, key=lambda option: option[0])
        best.append((work, [*groups, longest]))
    return best[-1][1]


def length_groups(encoder: "SentenceEncoder", inputs: Batch) -> Iterator[tuple[Tensor, Batch]]:
    """Parts of a batch, each of sequences of like length and padded to its own longest.

    This has been measured on CPUs only: elsewhere all are one group.

    Word embeddings are looked up once for all: every lookup has a gradient as large as the vocabulary.

    Where padding changes a backbone's vectors, all are one group in training. In evaluation a group has sequences of
    one length, on every device, so that a sentence has the vector that it has alone.

    Args:
        encoder: what reads them.
        inputs: tensors [sequences, tokens], padded on the right, `attention_mask` among them.

    Yields:
        The places of a group's sequences in the batch, and its tensors; `inputs_embeds` stands for `input_ids`
        where the backbone takes it.
    """
    unpadded = not (encoder.ignores_padding or encoder.training)
    if not unpadded and not (encoder.ignores_padding and inputs["input_ids"].is_cpu):
        yield torch.arange(len(inputs["input_ids"])), dict(inputs)
        return
    lengths = inputs["attention_mask"].sum(dim=1)
    if unpadded:
        longest = lengths.unique()
    else:
        longest = torch.tensor(longest_of_groups(lengths.tolist()))
        inputs = with_word_embeddings(encoder.backbone, inputs)
    group = torch.bucketize(lengths, longest)
    places = group.argsort(stable=True).split(group.bincount().tolist())
    for rows, tokens in zip(places, longest.tolist(), strict=True):
        yield rows, {name: x[rows, :tokens] for name, x in inputs.items()}


def with_word_embeddings(backbone: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Batch:
    """Replace `input_ids` by `inputs_embeds`, their word embeddings, where the backbone takes these."""
    words = word_embedding_layer(backbone)
    if words is None or "inputs_embeds" not in inspect.signature(backbone.forward).parameters:
        return dict(inputs)
    others = {name: x for name, x in inputs.items() if name != "input_ids"}
    return others | {"inputs_embeds": words(inputs["input_ids"])}


def in_length_groups(encoder: "SentenceEncoder", inputs: Batch) -> Tensor:
    """An encoder's vectors of sequences, padded to the longest of their group instead of the longest of all.

    Args:
        encoder: what encodes.
        inputs: see `length_groups`.

    Returns:
        [sequences, dim], in the order of the inputs.
    """
    places, vectors = zip(*((rows, encoder(group)) for rows, group in length_groups(encoder, inputs)), strict=True)
    if len(vectors) == 1:  # already in order
        only: Tensor = vectors[0]
        return only
    return torch.cat(vectors)[torch.cat(places).argsort()]
