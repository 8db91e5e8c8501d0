"""Split a batch into groups of similar length: the same vectors with less padding."""

import inspect
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from simcse_pl.models.backbone import packs_sequences
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import evaluation_mode
from simcse_pl.utils.types import Backbone, Batch

# The cost of one more pass, in tokens: small matrix products are inefficient, and in training each pass accumulates the
# gradients of all weights.
TOKENS_PER_PASS = 256
# The most attention scores per head of a group in training, sequences * tokens**2. Attention with dropout has no fused
# kernel on a CPU, and larger scores leave the caches: 512 tokens train about twice as fast with groups of this size.
_SCORES_PER_PASS = 2**19
_TOKENS_IN_EVALUATION = 2048  # in a group on a CPU, chosen on 2 cores: the states of more tokens leave the caches
_TOLERANCE = 1e-3  # relative to the largest state


class LengthGroups:
    """Passes a batch through a backbone in groups of similar length.

    If the backbone ignores padding, a batch on a CPU is split. It stays one group if `tokens_per_pass` is infinite,
    and on other devices, because groups have been measured on CPUs only. Groups of long sequences are split further.
    Word embeddings are looked up once for all groups: each lookup has a gradient as large as the vocabulary.

    If padding changes the backbone's vectors, training has one group. In evaluation, on any device, each
    group has sequences of one length. The vector of a sentence then does not depend on its batch.

    Args:
        ignores_padding: whether padding leaves the states of a sentence unchanged (see `ignores_padding`).
        tokens_per_pass: the cost of one more pass in training (see `longest_of_groups`). Evaluation assumes 256.
    """

    def __init__(self, ignores_padding: bool, tokens_per_pass: float = TOKENS_PER_PASS) -> None:
        self.ignores_padding = ignores_padding
        self.tokens_per_pass = tokens_per_pass

    def split(self, backbone: Backbone, inputs: Batch) -> Iterator[tuple[Tensor, Batch]]:
        """Yield parts of a batch, each with sequences of similar length and padded to its longest.

        Args:
            backbone: the model that reads the groups.
            inputs: tensors [sequences, tokens], padded on the right, including `attention_mask`.

        Yields:
            The indices of a group's sequences in the batch, and its tensors. `inputs_embeds` replaces
            `input_ids` if the backbone takes it.
        """
        cost = self.tokens_per_pass if backbone.training else TOKENS_PER_PASS
        lengths = inputs["attention_mask"].sum(dim=1).clamp(min=1)  # an empty sentence may have no tokens
        if self.ignores_padding and lengths.is_cpu and cost < math.inf:
            longest = torch.tensor(longest_of_groups(lengths.tolist(), cost))
            words, takes = backbone.get_input_embeddings(), inspect.signature(backbone.forward).parameters
            padding = getattr(getattr(backbone, "embeddings", None), "padding_idx", None)
            counts_padding = (
                padding is not None and (inputs["input_ids"] == padding)[inputs["attention_mask"] > 0].any()
            )
            # I-BERT's layer is quantized, and RoBERTa's positions skip a padding token that is written in the text
            if isinstance(words, nn.Embedding) and "inputs_embeds" in takes and not counts_padding:
                embedded = {"inputs_embeds": words(inputs["input_ids"])}
                inputs = {name: x for name, x in inputs.items() if name != "input_ids"} | embedded
        elif self.ignores_padding or backbone.training:
            yield torch.arange(len(lengths), device=lengths.device), dict(inputs)
            return
        else:
            longest = lengths.unique()
        group = torch.bucketize(lengths, longest)
        indices = group.argsort(stable=True).split(group.bincount().tolist())
        for rows, tokens in zip(indices, longest.tolist(), strict=True):
            most = _SCORES_PER_PASS // tokens**2 if backbone.training else _TOKENS_IN_EVALUATION // tokens
            for part in rows.chunk(math.ceil(len(rows) / max(1, most)) if rows.is_cpu else 1):
                yield part, {name: x[part, :tokens] for name, x in inputs.items()}


def longest_of_groups(lengths: Sequence[int], tokens_per_pass: float = TOKENS_PER_PASS) -> list[int]:
    """Return the split of lengths into groups that minimizes the work if each group is padded to its longest.

    Work is the number of tokens, including padding, plus a constant per group. The cost of attention is
    left out: for sentences it is small.

    Args:
        lengths: the lengths of sequences in any order, at least one.
        tokens_per_pass: the constant.

    Returns:
        The longest length of each group, ascending.
    """
    count = Counter(lengths)
    distinct = sorted(count)
    shorter = [0, *itertools.accumulate(count[length] for length in distinct)]
    best: list[tuple[float, list[int]]] = [(0, [])]  # the work and groups of the i shortest lengths
    for end, longest in enumerate(distinct, 1):
        splits = [(best[i][0] + (shorter[end] - shorter[i]) * longest + tokens_per_pass, i) for i in range(end)]
        work, start = min(splits)
        best.append((work, [*best[start][1], longest]))
    return best[-1][1]


@torch.no_grad()
def ignores_padding(backbone: Backbone, examples: Batch) -> bool:
    """Return whether padding leaves the hidden states of a sentence unchanged.

    Padding changes them if tokens are convolved (ConvBERT), or if the backbone treats `inputs_embeds`
    differently from `input_ids` (ESM).

    Args:
        backbone: the model.
        examples: two sentences of different length, the shorter one first, tensors [2, tokens] on its device. They
            are one batch in the reverse order, which would show if the model mixes unpadded sequences.

    Raises:
        UserError: the backbone does not return a state for every token, or packs sequences that it then mixes.
    """
    if backbone.device.type == "meta":  # the first rank finds out
        return True
    tokens, size = int(examples["attention_mask"][0].sum()), backbone.config.hidden_size
    with evaluation_mode(backbone):
        alone = backbone(**{name: x[:1, :tokens] for name, x in examples.items()}).get("last_hidden_state")
        if alone is None or alone.shape != (1, tokens, size):
            model = type(backbone).__name__
            raise UserError(f"{model} does not return one vector of hidden_size={size} for every token")
        reverse = {name: x.flip(0) for name, x in examples.items()}
        ((_, group),) = LengthGroups(ignores_padding=True).split(backbone, reverse)  # one group
        beside = backbone(**group).last_hidden_state[1:, :tokens]
    ignores = bool((beside - alone).abs().max() <= _TOLERANCE * alone.abs().max())
    if packs_sequences(backbone) and not ignores:
        raise UserError(f"attn_implementation: {type(backbone).__name__} mixes sequences of a packed batch: set null")
    return ignores
