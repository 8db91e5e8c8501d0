"""Sequences of like length through an encoder together: the same vectors, without most of the padding."""

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.backbone import word_embedding_layer
from simcse_pl.models.tokenization import Batch, padded, tokenize
from simcse_pl.utils.errors import UserError

# What one more pass costs, in tokens' worth of work: small products are slower, and every pass has gradients of all
# weights. Steps of the packaged encoder were fastest with 128 to 256.
_TOKENS_PER_PASS = 256
_PADDING_CHANGES = 1e-3  # of the largest state
EXAMPLE = "Nobody told the old sailor why 7 dogs, 20 cats and 1 quick brown fox had jumped over his lazy boat at dawn."


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


def length_groups(backbone: PreTrainedModel, inputs: Batch, ignores_padding: bool) -> Iterator[tuple[Tensor, Batch]]:
    """Parts of a batch, each of sequences of like length and padded to its own longest.

    This has been measured on CPUs only: elsewhere all are one group.

    Word embeddings are looked up once for all: every lookup has a gradient as large as the vocabulary.

    Where padding changes a backbone's vectors, all are one group in training. In evaluation a group has sequences of
    one length, on every device, so that a sentence has the vector that it has alone.

    Args:
        backbone: the model that reads them.
        inputs: tensors [sequences, tokens], padded on the right, `attention_mask` among them.
        ignores_padding: see `ignores_padding`.

    Yields:
        The places of a group's sequences in the batch, and its tensors; `inputs_embeds` stands for `input_ids`
        where the backbone takes it.
    """
    unpadded = not (ignores_padding or backbone.training)
    if not unpadded and not (ignores_padding and inputs["input_ids"].is_cpu):
        yield torch.arange(len(inputs["input_ids"])), dict(inputs)
        return
    lengths = inputs["attention_mask"].sum(dim=1)
    if unpadded:
        longest = lengths.unique()
    else:
        longest = torch.tensor(longest_of_groups(lengths.tolist()))
        inputs = with_word_embeddings(backbone, inputs)
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


@torch.no_grad()
def ignores_padding(backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int) -> bool:
    """Return whether padding leaves the hidden states of a sentence unchanged.

    Padding changes them if tokens are convolved (ConvBERT), if attention has no mask (FNet), or if word embeddings
    that were looked up before are scaled differently (ESM).

    Raises:
        UserError: the backbone does not return a state for every token.
    """
    words = EXAMPLE.split()
    sentences = [" ".join(words[: len(words) // 2]), EXAMPLE]
    inputs = padded(tokenize(tokenizer, sentences, min(max_length, 64)), tokenizer)
    both = {name: x.to(backbone.device) for name, x in inputs.items()}
    tokens, size = int(both["attention_mask"][0].sum()), backbone.config.hidden_size
    was_training = backbone.training
    backbone.eval()
    alone = backbone(**{name: x[:1, :tokens] for name, x in both.items()}).get("last_hidden_state")
    if alone is None or alone.shape != (1, tokens, size):
        model = type(backbone).__name__
        raise UserError(f"{model} does not return one vector of hidden_size={size} for every token")
    beside = backbone(**with_word_embeddings(backbone, both)).last_hidden_state[:1, :tokens]
    backbone.train(was_training)
    difference = (beside - alone).abs().max()
    return bool(difference <= _PADDING_CHANGES * alone.abs().max())
