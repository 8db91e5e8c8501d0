"""The training dataset: the selected rows, and the positives that a view makes of them."""

import itertools
import logging
import random
from array import array
from collections.abc import Iterator, Sequence

from torch.utils.data import Dataset

from simcse_pl.data.collators import LabeledRow, Sentence
from simcse_pl.data.readers.row_reader import Row
from simcse_pl.data.views.view import View, ViewInput
from simcse_pl.models.tokenization import Tokens
from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)

RowKey = tuple[int, int]  # the epoch, and the position among the selected rows


class TrainingDataset(Dataset[list[tuple[Sentence, ...]] | list[LabeledRow]]):
    """Rows to train on; for a row of one sentence, the sentence and the positive that a view makes of it.

    Each view's random generator is seeded by (seed, epoch, row). Keys contain the epoch because worker processes may
    live for several epochs.

    Args:
        rows: all rows of a source; of one sentence each if there is a view.
        view: how positives are made; if None, rows are returned as they are.
        labels: the class name of each row, or None.
        documents: the name of each row's document, if the view needs the next sentences. The last row of each document
            is then left out.
        limit: the number of rows to train on, drawn at random and kept in order; None for all.
        seed: seeds the draw and the view.
        tokens: the tokens of each row's sentences, if known. Rows are then returned as tokens, except the positives
            that a view makes.

    Raises:
        UserError: all rows have one class, no row has a next sentence in its document, or the limit is out of range.

    Attributes:
        classes: the class names in alphabetical order, which is the order of their numbers.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        view: View | None = None,
        labels: Sequence[str] | None = None,
        documents: Sequence[str] | None = None,
        limit: int | None = None,
        seed: int = 42,
        tokens: Sequence[tuple[Tokens, ...]] | None = None,
    ) -> None:
        self.rows, self.tokens, self.view, self.seed = rows, tokens, view, seed
        self.labels, self.documents = labels, documents
        self.classes = sorted(set(labels or []))
        if len(self.classes) == 1:
            raise UserError(f"data.label_column: all rows have the label {self.classes[0]}; at least two are needed")
        self._numbers = {name: number for number, name in enumerate(self.classes)}
        self.chosen: Sequence[int] = range(len(rows)) if documents is None else _followed(documents)
        if limit is not None:
            if not 1 <= limit <= len(self.chosen):
                raise UserError(f"data.limit={limit}: it must be 1 to {len(self.chosen)}, the number of rows")
            self.chosen = sorted(random.Random(seed).sample(self.chosen, limit))

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, keys: Sequence[RowKey]) -> list[tuple[Sentence, ...]] | list[LabeledRow]:
        """Return the rows of a batch, each with its positive and, if there are labels, its label.

        Args:
            keys: from `ContrastiveBatchSampler`.
        """
        places = [(epoch, self.chosen[row]) for epoch, row in keys]
        given: Sequence[tuple[Sentence, ...]] = self.rows if self.tokens is None else self.tokens
        rows = [given[place] for _, place in places]
        if self.view is not None:
            positives = self.view([self._view_input(self.view, epoch, place) for epoch, place in places])
            rows = [(*row, positive) for row, positive in zip(rows, positives, strict=True)]
        if self.labels is None:
            return rows
        return [(row, self._numbers[self.labels[place]]) for row, (_, place) in zip(rows, places, strict=True)]

    def _view_input(self, view: View, epoch: int, place: int) -> ViewInput:
        (sentence,) = self.rows[place]
        following = tuple(self._following(place, view.num_following))
        return ViewInput(sentence, following, random.Random(f"{self.seed}-{epoch}-{place}"))

    def _following(self, place: int, most: int) -> Iterator[str]:
        """Yield the next sentences of the row's document."""
        for after in range(place + 1, min(place + 1 + most, len(self.rows))):
            if self.documents is None or self.documents[after] != self.documents[place]:
                return
            yield self.rows[after][0]


def _followed(documents: Sequence[str]) -> Sequence[int]:
    """Return the rows that have a next sentence in their document."""
    followed = array("q", (i for i, (own, after) in enumerate(itertools.pairwise(documents)) if own == after))
    if not followed:
        raise UserError("data.train: no sentence has a next one in its document, which this view needs")
    if documents[0] == documents[-1]:
        log.warning("train: no blank line separates documents, so each line is taken as the next of the one before")
    left_out = len(documents) - len(followed)
    log.info("train: %d of %d sentences are left out, the last of their documents", left_out, len(documents))
    return followed
