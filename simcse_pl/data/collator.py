"""From rows to batches: the rows of a training set, each with its views, and the collator that pads them."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.sampler import RowKey, Rows
from simcse_pl.data.sources import Source
from simcse_pl.data.token_cache import TokenCache
from simcse_pl.data.view import Segmenter, View
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import BEGINS_WORD, INSIDE_WORD, tokenize, tokenize_rows
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Batch, RowKind, Tokens

Sentence = str | Tokens  # text, or its tokens


@dataclass(frozen=True)
class ViewCollator:
    """Collates rows into one padded batch of views.

    A row of one sentence gives two equal views, whose embeddings differ by the encoder's dropout (unsupervised SimCSE).
    The views of a longer row are its sentences, in order.

    Args:
        tokenizer: the encoder's tokenizer.
        max_length: the number of tokens read of a sentence, or of each view (see SentenceDataModule).
        templates: the encoder's; None for none.
        segment: splits a sentence into the words that are masked whole; None adds no `begins_word` to a batch.
        prompts: the name of each view's prompt, in place of its template (see Templates.batch).
    """

    tokenizer: PreTrainedTokenizerBase
    max_length: int | Sequence[int]
    templates: Templates | None = None
    segment: Segmenter | None = None
    prompts: Sequence[str | None] = ()

    def __call__(self, rows: Sequence[tuple[Sentence, ...]]) -> Batch:
        """Return tensors [batch, views, tokens]; all rows have the same number of sentences."""
        if isinstance(rows[0], str) or len({*map(len, rows)}) > 1:
            raise UserError("rows: each must be a tuple of the same number of sentences, such as (text,)")
        templates = self.templates or Templates(self.tokenizer)
        if len(rows[0]) == 1 and len(self.prompts or templates.texts) > 1:
            rows = [(sentence, sentence) for (sentence,) in rows]
        width = len(rows[0])
        tokens = self.tokens_of(rows)
        inputs = templates.batch(tokens, width, self.prompts)
        if self.segment:
            ids = inputs["input_ids"]
            inputs |= {"input_ids": ids % INSIDE_WORD, BEGINS_WORD: ids < INSIDE_WORD}
        views = {name: tensor.view(len(rows), width, -1) for name, tensor in inputs.items()}
        return views if width > 1 else {name: tensor.repeat(1, 2, 1) for name, tensor in views.items()}

    def tokens_of(self, rows: Sequence[Sequence[Sentence]]) -> list[Tokens | list[int]]:
        """Return the tokens of the sentences of rows, in order, which are text or tokens."""
        make = partial(tokenize, self.tokenizer)
        texts = [(text, column) for row in rows for column, text in enumerate(row) if isinstance(text, str)]
        if self.segment and texts:
            from simcse_pl.data.words import tokenize_words

            make = partial(tokenize_words, self.tokenizer, segment=self.segment)
        new = iter(tokenize_rows(make, [text for text, _ in texts], self.max_length, [column for _, column in texts]))
        return [next(new) if isinstance(sentence, str) else sentence for row in rows for sentence in row]


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingRows(RowKind):
    """The rows of a training set, read and tokenized, and what they are to a loss. They make the batches.

    Each view's random generator is seeded by (seed, epoch, row), and further views also by their position, unless they
    share their random numbers. The epoch is 0 for a view that is made `once`. Keys contain the epoch because worker
    processes may live for several epochs.

    Args:
        cache: the rows of the source.
        chosen: the positions of the rows to train on.
        held_out: the positions of the rows that are held out.
        views: the views to add to each row, by name.
        width: the number of sentences of a row that are in a batch; 0 if a view replaces the only sentence.
        columns: of each view of a batch, its position in the row; None for a sentence that a view makes.
        class_numbers: the number of each class by its name, in order.
        drawn: the numbers of positives and hard negatives to draw of each row; None for the sentences as they are.
        warnings: why scores of the run may be too high.
    """

    train: Source
    cache: TokenCache
    chosen: Rows
    held_out: Rows
    seed: int
    views: Mapping[Any, View]
    width: int
    columns: tuple[int | None, ...]
    class_numbers: Mapping[str, int]
    drawn: tuple[int, int] | None
    collate: ViewCollator
    warnings: Sequence[str] = ()

    @property
    def sentences(self) -> Sequence[tuple[str, ...]]:
        return self.cache

    @property
    def size(self) -> str:
        """The number of rows to train on, and of their sentences, in words."""
        width = max(self.width, 1)
        return f"{len(self.chosen)} rows of {width} sentence{'s' * (width > 1)}"

    def batch(self, keys: Sequence[RowKey]) -> dict[str, Any]:
        """Return tensors [batch, views, tokens], and `labels`, `roles` and so on (see SimCSEModule.batch_of)."""
        positions = self._positions(keys)
        rows = self.with_views(keys)
        batch: dict[str, Any] = self.collate(rows)
        if self.labels:
            labels = [self.cache.label(position) for position in positions]
            classes = self.labels == "classes"
            batch["labels"] = torch.tensor([self.class_numbers[label] for label in labels] if classes else labels)
        if self.drawn:
            batch["copies"] = torch.tensor([self._copies(row) for row in rows])
        batch["roles"] = self.roles
        batch["rows"] = np.array(positions)
        if self.dataset:
            batch["dataset"] = self.dataset
        return batch

    def with_views(self, keys: Sequence[RowKey]) -> Sequence[tuple[Sentence, ...]]:
        """Return the rows of a batch, each with its views."""
        positions = self._positions(keys)
        rows = self._in_batch(keys, positions)
        if not self.views:
            return rows
        from simcse_pl.data.make_views import add_views

        return add_views(self, keys, positions, rows)

    def tokens(self, positions: Sequence[int]) -> list[tuple[Tokens, ...]]:
        """Return the tokens of the rows at these positions. A segmenter, if there is one, marks their words."""
        if not self.collate.segment:
            return [self.cache.tokens(position) for position in positions]
        rows = [self.cache[position] for position in positions]
        marked = map(np.asarray, self.collate.tokens_of(rows))
        return [tuple(itertools.islice(marked, len(row))) for row in rows]

    def _in_batch(self, keys: Sequence[RowKey], positions: Sequence[int]) -> list[tuple[Tokens, ...]]:
        """Return the tokens of a batch's rows, or of the candidates that are drawn from them if `drawn` is set."""
        rows = self.tokens(positions)
        if not self.drawn:
            return rows
        from simcse_pl.data.candidates import draw_candidates

        for number, ((epoch, _), position, row) in enumerate(zip(keys, positions, rows, strict=True)):
            positives, seed = int(self.cache.label(position)), f"{self.seed}-{epoch}-{position}-drawn"
            rows[number] = tuple([row[i] for i in draw_candidates(len(row), positives, self.drawn, seed)])
        return rows

    def _copies(self, row: Sequence[Sentence]) -> list[bool]:
        """Return which sentences of a row were drawn before: they are the same object. Views are none."""
        return [i < self.width and any(one is other for other in row[:i]) for i, one in enumerate(row)]

    def _positions(self, keys: Sequence[RowKey]) -> list[int]:
        return [int(self.chosen[row]) for _, row in keys]
