"""What is trained on: the rows that are chosen, and the views of them that an epoch shows."""

import itertools
import logging
import random
from array import array
from collections.abc import Iterator, Sequence

from torch.utils.data import Dataset

from simcse_pl.data.collators import LabeledRow, Sentence
from simcse_pl.data.readers.row_reader import Row
from simcse_pl.data.views.view import Original, View
from simcse_pl.models.tokenization import Tokens
from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)

Key = tuple[int, int]  # the epoch, and the place among the chosen rows

_FOLLOWING = 3  # sentences that a view is shown of those after a row's own


class TrainingDataset(Dataset[list[tuple[Sentence, ...]] | list[LabeledRow]]):
    """Rows to train on; of a row of one sentence, the sentence and the positive that a view makes of it.

    A view's chance is seeded by the seed, the epoch and the row. The keys carry the epoch, so that worker
    processes, which may outlive it, need not be told.

    Args:
        rows: all of a source; of one sentence each where there is a view.
        view: how positives are made; where None, rows are given as they are.
        labels: the name of each row's class, or None.
        documents: the name of each row's document, where the view needs the sentences that follow: rows
            that are the last of their document are left out.
        limit: how many rows are trained on, drawn at random and kept in order; all where None.
        seed: of what is drawn, and of the view's chance.
        tokens: of each row those of its sentences, where they are known; rows are then given as tokens, but for
            the positives that a view makes.

    Raises:
        UserError: all rows of one class, none with another after it in its document, or a limit out of range.

    Attributes:
        classes: the names of the classes in the order of their numbers, which is the alphabet's.
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
        self.rows = rows
        self.tokens = tokens
        self.view = view
        self.classes = sorted(set(labels or []))
        if len(self.classes) == 1:
            raise UserError(f"data.label_column: every row has the label {self.classes[0]}, which tells nothing apart")
        self._numbers = {name: number for number, name in enumerate(self.classes)}
        self.labels = labels
        self.documents = documents
        self.seed = seed
        self.chosen: Sequence[int] = range(len(rows)) if documents is None else _followed(documents)
        if limit is not None:
            if not 1 <= limit <= len(self.chosen):
                raise UserError(f"data.limit={limit}: it must be 1 to {len(self.chosen)}, the rows that there are")
            self.chosen = sorted(random.Random(seed).sample(self.chosen, limit))

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, keys: Sequence[Key]) -> list[tuple[Sentence, ...]] | list[LabeledRow]:
        """The rows of a batch, each with its positive and, where there are labels, with its label.

        Args:
            keys: from `ContrastiveBatchSampler`.
        """
        places = [(epoch, self.chosen[row]) for epoch, row in keys]
        given: Sequence[tuple[Sentence, ...]] = self.rows if self.tokens is None else self.tokens
        rows = [given[place] for _, place in places]
        if self.view is not None:
            positives = self.view([self._original(epoch, place) for epoch, place in places])
            rows = [(*row, positive) for row, positive in zip(rows, positives, strict=True)]
        if self.labels is None:
            return rows
        return [(row, self._numbers[self.labels[place]]) for row, (_, place) in zip(rows, places, strict=True)]

    def _original(self, epoch: int, place: int) -> Original:
        (sentence,) = self.rows[place]
        return Original(sentence, tuple(self._following(place)), random.Random(f"{self.seed}-{epoch}-{place}"))

    def _following(self, place: int) -> Iterator[str]:
        """The next sentences of the row's document."""
        if self.documents is None:
            return
        for after in range(place + 1, min(place + 1 + _FOLLOWING, len(self.rows))):
            if self.documents[after] != self.documents[place]:
                return
            yield self.rows[after][0]


def _followed(documents: Sequence[str]) -> Sequence[int]:
    """The rows that have another after them in their document."""
    followed = array("q", (i for i, (own, after) in enumerate(itertools.pairwise(documents)) if own == after))
    if not followed:
        raise UserError("data.train: no sentence is followed by another in its document, which this view needs")
    if documents[0] == documents[-1]:
        log.warning("train: no blank line tells documents apart, and each line is taken to follow the one before")
    left_out = len(documents) - len(followed)
    log.info("train: %d of %d sentences are the last of their document and left out", left_out, len(documents))
    return followed
