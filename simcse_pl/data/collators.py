"""Batches: tokenized views of rows for training, with labels or without, tokenized scored pairs for validation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.token_cache import Tokens, tokenize

Batch = dict[str, Tensor]
Sentence = str | Tokens  # its text, or its tokens where they are known
LabeledRow = tuple[tuple[Sentence, ...], int]  # its sentences and the number of its class
TokenizedPair = tuple[Tokens, Tokens, float]  # two sentences and their score

_BATCHES_SORTED_TOGETHER = 128  # tokens of all sentences at once would take much memory


@dataclass(frozen=True)
class ViewCollator:
    """Rows into one padded batch of views.

    A row of one sentence gets a second view of itself: the encoder's dropout tells them apart, as in
    unsupervised SimCSE. Longer rows are the anchor, its positive and hard negatives.

    Args:
        tokenizer: returns what the backbone takes.
        max_length: tokens read of a sentence, special tokens included.
    """

    tokenizer: PreTrainedTokenizerBase
    max_length: int

    def __call__(self, rows: Sequence[tuple[Sentence, ...]]) -> Batch:
        """Tensors [batch, views, tokens] for rows of equal length."""
        sentences = [sentence for row in rows for sentence in row]
        texts = [sentence for sentence in sentences if isinstance(sentence, str)]
        new = iter(tokenize(self.tokenizer, texts, self.max_length))
        tokens = [next(new) if isinstance(sentence, str) else sentence for sentence in sentences]
        inputs = padded(tokens, self.tokenizer)
        views = {name: tensor.view(len(rows), len(rows[0]), -1) for name, tensor in inputs.items()}
        return views if len(rows[0]) > 1 else {name: tensor.repeat(1, 2, 1) for name, tensor in views.items()}


@dataclass(frozen=True)
class LabeledViewCollator:
    """Rows with a class label into one padded batch of views and the labels."""

    views: ViewCollator

    def __call__(self, rows: Sequence[LabeledRow]) -> Batch:
        """Tensors [batch, views, tokens], and `labels` [batch] int64, for rows of equal length."""
        return self.views([row for row, _ in rows]) | {"labels": torch.tensor([label for _, label in rows])}


@dataclass(frozen=True)
class PairCollator:
    """Tokenized pairs into one padded batch."""

    tokenizer: PreTrainedTokenizerBase

    def __call__(self, pairs: Sequence[TokenizedPair]) -> Batch:
        """Tensors [batch, 2, tokens], and `scores` [batch]."""
        inputs = padded([tokens for first, second, _ in pairs for tokens in (first, second)], self.tokenizer)
        batch = {name: tensor.view(len(pairs), 2, -1) for name, tensor in inputs.items()}
        return batch | {"scores": torch.tensor([score for _, _, score in pairs])}


def batches_of_like_length(
    sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase, batch_size: int, max_length: int
) -> Iterator[tuple[list[int], Batch]]:
    """The places and padded tokens of sentences of like length, the longest of a good many first."""
    many = batch_size * _BATCHES_SORTED_TOGETHER
    for begin in range(0, len(sentences), many):
        tokens = tokenize(tokenizer, list(sentences[begin : begin + many]), max_length)
        order = sorted(range(len(tokens)), key=lambda i: -len(tokens[i]))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            yield [begin + i for i in rows], padded([tokens[i] for i in rows], tokenizer)


def padded(tokens: Sequence[Tokens | Sequence[int]], tokenizer: PreTrainedTokenizerBase) -> Batch:
    """What the tokenizer itself would return of single sentences, padded to the longest: tensors [n, tokens] int64."""
    shape = len(tokens), max(map(len, tokens))
    ids, mask = np.full(shape, tokenizer.pad_token_id, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, own in enumerate(tokens):
        ids[row, : len(own)] = own
        mask[row, : len(own)] = 1
    inputs = {"input_ids": ids, "token_type_ids": np.zeros(shape, dtype=np.int64), "attention_mask": mask}
    return {name: torch.from_numpy(inputs[name]) for name in tokenizer.model_input_names}
