"""Batches: tokenized views of rows for training, with labels or without, tokenized scored pairs for validation."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.readers import Row
from simcse_pl.data.sts import ScoredPair

Batch = dict[str, Tensor]
LabeledRow = tuple[Row, int]  # its sentences and the number of its class


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

    def __call__(self, rows: Sequence[Row]) -> Batch:
        """Tensors [batch, views, tokens] for rows of equal length."""
        sentences = [sentence for row in rows for sentence in row]
        inputs = self.tokenizer(
            sentences, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt"
        )
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
    """Scored pairs into one padded batch, at the encoder's own length."""

    tokenizer: PreTrainedTokenizerBase

    def __call__(self, pairs: Sequence[ScoredPair]) -> Batch:
        """Tensors [batch, 2, tokens], and `scores` [batch]."""
        sentences = [sentence for pair in pairs for sentence in (pair.first, pair.second)]
        inputs = self.tokenizer(sentences, padding=True, truncation=True, return_tensors="pt")
        batch = {name: tensor.view(len(pairs), 2, -1) for name, tensor in inputs.items()}
        return batch | {"scores": torch.tensor([pair.score for pair in pairs])}
