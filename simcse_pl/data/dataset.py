"""The training dataset: the selected rows, and the views that are made from them."""

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
    """Rows to train on: the tokens of their sentences, then the views that are made from their anchors.

    Each view's random generator is seeded by (seed, epoch, row), and further views also by their position, unless they
    share their random numbers. The epoch is 0 for a view that is made `once`. Keys contain the epoch because worker
    processes may live for several epochs.

    Args:
        rows: all rows of a source. The first sentence of a row is its anchor.
        tokens: the tokens of each row's sentences.
        views: the views to add to each row.
        labels: the class name, or the score, of each row; or None.
        scores: whether labels are scores.
        documents: the name of each row's document, if a view needs the next sentences. The last row of each document
            is then left out.
        limit: the number of rows to train on, chosen at random and kept in order; None for all.
        seed: seeds this choice and the views.
        longest: the maximum number of tokens that the model reads; None for no maximum.
        special: the numbers of special tokens at the start and at the end of a sentence's tokens.
        mask: the id of the tokenizer's mask token; None if it has none.

    Raises:
        UserError: all rows have one class, no row has a next sentence in its document, or the limit is out of range;
            from `__getitem__`, a view has too many tokens.

    Attributes:
        classes: the class names in alphabetical order, which is the order of their numbers.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        tokens: Sequence[tuple[Tokens, ...]],
        views: Sequence[View] = (),
        labels: Sequence[str] | None = None,
        scores: bool = False,
        documents: Sequence[str] | None = None,
        limit: int | None = None,
        seed: int = 42,
        longest: int | None = None,
        special: tuple[int, int] = (1, 1),
        mask: int | None = None,
    ) -> None:
        self.rows, self.tokens, self.views, self.seed = rows, tokens, views, seed
        self.longest, self.special, self.mask = longest, special, mask
        self.labels, self.scores, self.documents = labels, scores, documents
        self.classes = [] if scores else sorted(set(labels or []))
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
        """Return the rows of a batch, each with its views and, if there are labels, its label.

        Args:
            keys: from `ContrastiveBatches`.
        """
        places = [(epoch, self.chosen[row]) for epoch, row in keys]
        own = [self.tokens[place] for _, place in places]
        rows: list[tuple[Sentence, ...]] = list(own)
        for number, view in enumerate(self.views):
            made = view([self._input(number, *key, row[0]) for key, row in zip(places, own, strict=True)])
            rows = [(*row, self._checked(view, one)) for row, one in zip(rows, made, strict=True)]
        if self.labels is None:
            return rows
        return [(row, self._label(place)) for row, (_, place) in zip(rows, places, strict=True)]

    def _input(self, number: int, epoch: int, place: int, tokens: Tokens) -> ViewInput:
        view = self.views[number]
        seed = f"{self.seed}-{0 if view.once else epoch}-{place}"
        if number and not view.shared_random:
            seed += f"-{number}"
        following = tuple(self._following(place, view.num_following))
        how = self.special, self.longest, self.mask
        return ViewInput(self.rows[place][0], following, random.Random(seed), tokens, *how)

    def _label(self, place: int) -> int | float:
        assert self.labels is not None
        return float(self.labels[place]) if self.scores else self._numbers[self.labels[place]]

    def _checked(self, view: View, made: Sentence) -> Sentence:
        """Return a view; raise UserError if it has too many tokens. Text is truncated later, token ids are not."""
        if self.longest is not None and not isinstance(made, str) and len(made) > self.longest:
            long = f"{type(view).__name__} made a view of {len(made)} tokens"
            raise UserError(f"data.views: {long}, but this model reads {self.longest}: lower data.max_length")
        return made

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
        raise UserError("data.train: this view needs the next sentence, and no document has two sentences")
    if documents[0] == documents[-1]:
        log.warning("train: the file has no blank lines between documents, so all its lines are one document")
    left_out = len(documents) - len(followed)
    log.info("train: %d of %d sentences are left out, because no sentence follows them", left_out, len(documents))
    return followed
