"""Match a tokenizer with its backbone, tokenize sentences, and hash their tokens."""

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from tokenizers import processors
from torch import Tensor
from transformers.tokenization_utils_base import LARGE_INTEGER, PreTrainedTokenizerBase

from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.types import Backbone, Batch, Role

MaxLength = int | Sequence[int] | Mapping[Role, int]  # one, per sentence of a row (later: the last), or per role
SENTENCE_MASK = "sentence_mask"  # in a batch: 1 for a sentence's tokens, 0 for special, template's and pad tokens
BEGINS_WORD = "begins_word"  # in a batch: which tokens begin a word of a segmenter, if whole words are masked
INSIDE_WORD = 1 << 30  # is added to the ids of the other tokens, before they are collated
_MOST_UNKNOWN = 0.2  # share of the tokens; text in the script of the tokenizer has next to none
_LOCK = threading.Lock()  # a tokenizer keeps the limit of a call, and another thread may have set another one
EXAMPLES = (
    "Nobody told the old sailor why 7 dogs, 20 cats and",
    "Nobody told the old sailor why 7 dogs, 20 cats and 1 quick brown fox had jumped over his lazy boat at dawn.",
)


def match_inputs(tokenizer: PreTrainedTokenizerBase, backbone: Backbone) -> None:
    """Make the tokenizer return only what the backbone takes.

    DistilBERT and MPNet take no token types. DeBERTa, XLM and XLNet take them without embeddings for them.
    """
    takes = inspect.signature(backbone.forward).parameters
    names = [name for name in ("input_ids", "token_type_ids", "attention_mask") if name in takes]
    if not getattr(backbone.config, "type_vocab_size", 0):
        names = [name for name in names if name != "token_type_ids"]
    tokenizer.model_input_names = names
    tokenizer.init_kwargs["model_input_names"] = names  # is saved with the tokenizer


def append_end_token(tokenizer: PreTrainedTokenizerBase) -> None:
    """Append the end token to each sentence, unless its last token is a special one already."""
    ids, plain = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (True, False))
    if ids[-1] in tokenizer.all_special_ids:
        return
    if tokenizer.eos_token is None or not tokenizer.is_fast:
        raise UserError(f"end_token=true: the tokenizer of {tokenizer.name_or_path} has no end token, or is a slow one")
    names = [*tokenizer.convert_ids_to_tokens(ids[: -len(plain)]), tokenizer.eos_token]
    special = {name: tokenizer.convert_tokens_to_ids(name) for name in names}
    template = processors.TemplateProcessing([*names[:-1], "$A", names[-1]], special_tokens=[*special.items()])
    tokenizer.backend_tokenizer.post_processor = template


def tokenize(tokenizer: PreTrainedTokenizerBase, sentences: list[str], max_length: int) -> list[list[int]]:
    """Return the token ids of each sentence, including special tokens, truncated to `max_length`."""
    if not sentences:
        return []
    options = {"return_attention_mask": False, "return_token_type_ids": False}
    with reraise_as(f"the tokenizer of {tokenizer.name_or_path}"), _LOCK:
        ids: list[list[int]] = tokenizer(sentences, truncation=True, max_length=max_length, **options)["input_ids"]
    return ids


def by_position(max_length: MaxLength, roles: Sequence[Role]) -> int | Sequence[int]:
    """Return the lengths of sentences with these roles; a role without a length has the last one."""
    if not isinstance(max_length, Mapping):
        return max_length
    *_, last = max_length.values()
    return [max_length.get(role, last) for role in roles]


def length_at(max_length: int | Sequence[int], position: int) -> int:
    """Return the length of a sentence, given its position in its row."""
    return max_length if isinstance(max_length, int) else max_length[min(position, len(max_length) - 1)]


def tokenize_rows(
    make: Callable[[list[str], int], list[list[int]]],
    sentences: list[str],
    max_length: int | Sequence[int],
    positions: Iterable[int],
) -> list[list[int]]:
    """Return the token ids of sentences, each truncated to the length of its position in its row.

    Args:
        make: returns the token ids of sentences that have the same length.
        sentences: the sentences.
        max_length: the length, or that of each position.
        positions: the position of each sentence in its row.
    """
    lengths, tokens = [length_at(max_length, position) for position in positions], [list[int]() for _ in sentences]
    for length in set(lengths):
        chosen = [i for i, allowed in enumerate(lengths) if allowed == length]
        for i, ids in zip(chosen, make([sentences[i] for i in chosen], length), strict=True):
            tokens[i] = ids
    return tokens


def unknown_text(tokenizer: PreTrainedTokenizerBase, tokens: list[list[int]]) -> str | None:
    """Return a warning if the tokenizer does not know much of a text, or None."""
    unknown = sum(ids.count(tokenizer.unk_token_id) for ids in tokens) if tokenizer.unk_token_id is not None else 0
    if unknown <= _MOST_UNKNOWN * sum(map(len, tokens)):
        return None
    name, share = tokenizer.name_or_path, f"{_MOST_UNKNOWN:.0%}"
    return f"the tokenizer of {name} does not know over {share} of a text: choose a model of its language"


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save a tokenizer that truncates sentences to its `model_max_length`, if it has one, and does not pad them.

    `tokenizer.json` would hold the truncation and the padding of the last call, or of the model it was made for.
    """
    if tokenizer.is_fast:
        backend, limit = tokenizer.backend_tokenizer, tokenizer.model_max_length
        backend.no_padding()
        backend.no_truncation()
        if limit < LARGE_INTEGER:
            backend.enable_truncation(limit, direction=tokenizer.truncation_side)
    tokenizer.save_pretrained(folder)


def hash_token_ids(batch: Batch) -> Tensor:
    """Return a 64-bit hash of each sentence's token ids, [batch, views], which does not depend on padding.

    It does not depend on the sentence's template if the batch has a `sentence_mask` (see templates.py).
    Different sentences have the same hash with negligible probability.
    """
    ids = batch["input_ids"]
    factors = _factors(ids.shape[-1], ids.device)
    if (mask := batch.get(SENTENCE_MASK)) is None:
        mask = batch["attention_mask"]
    else:
        factors = factors[(mask.cumsum(dim=-1) - 1).clamp(min=0)]  # of the position in the sentence
    return ((ids + 1) * mask * factors).sum(dim=-1)


@cache
def _factors(tokens: int, device: torch.device) -> Tensor:
    """Return one random factor per position; more tokens append factors and change none."""
    numbers = np.random.SeedSequence(0).generate_state(tokens, np.uint64).view(np.int64)
    return torch.from_numpy(numbers).to(device)
