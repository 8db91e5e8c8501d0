"""A training set: its source, the views of its rows, and its batches."""

import itertools
import logging
import random
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.collator import Sentence, ViewCollator
from simcse_pl.data.labels import Names, class_names
from simcse_pl.data.layout import Format, Layout
from simcse_pl.data.rows import ScoreColumn, label_columns
from simcse_pl.data.sampler import RowKey, Rows, choose
from simcse_pl.data.sources import with_header
from simcse_pl.data.streaming import RowStream
from simcse_pl.data.token_cache import Block, Reading, TokenCache, Tokenize
from simcse_pl.data.view import Dropout, View, ViewInput
from simcse_pl.data.words import Segmenter
from simcse_pl.models.templates import Templates
from simcse_pl.utils.errors import UserError, prefixed
from simcse_pl.utils.types import LabelKind, Role, RowKind, Tokens, candidates, default_roles

log = logging.getLogger(__name__)

_LABELS_SHOWN = 10
_ROWS_TRIED = 128  # by each view
_FEWEST_CHANGED = 1 / 32  # of the sentences that a view is tried on


@dataclass
class TrainingSet:
    """Rows of sentences to train on, and the views that are made from their anchors.

    Each view's random generator is seeded by (seed, epoch, row), and further views also by their position, unless they
    share their random numbers. The epoch is 0 for a view that is made `once`. Keys contain the epoch because worker
    processes may live for several epochs. If a view needs the next sentences, the last row of each document is left
    out.

    Args:
        train: the data (see sources.open_source).
        columns, on_invalid_row: how to read it (see row_reader.rows_of).
        format, separator, header, encoding: how the file is written (see layout.Layout).
        split: the split of a data set of the hub.
        label_column: the column of the classes, by name or by position from 0; batches then have int64 `labels`.
        score_column: in place of `label_column`, the column of the scores; batches then have float32 `labels`, [batch].
            A list has a column for each positive and hard negative, in their order; labels are then [batch, columns].
        label_names: the words for the labels 0, 1, ... in this column; None for any classes, numbered in alphabetical
            order, and for scores as numbers or words that are known (see labels.label_number).
        roles: the role of each column, the anchor first; None for anchor, positive, then hard negatives.
        prompts: the name of each column's prompt, one of the encoder's `prompts`, or None for its template or none;
            further columns and views have the last name. None for the template in all of them.
        limit: the number of rows to train on, chosen at random from those that are not held out, and kept in order;
            None for all of them.
        hold_out: the share of the rows to hold out, or their number if it is 1 or more, chosen at random. They are not
            trained on; their loss is measured.
        views: the views to add to each row, by name. Without views, a row of one sentence is its own positive. If
            `Dropout` is the only view, it is added only to rows without a positive. A view that is None adds nothing;
            a single view needs no name. A first view with the role `anchor` takes the place of the row's only sentence.
        batch_size: the rows of a contrastive batch, over all devices together.
        sampler: from `kind` to the group of each row that is trained on, of which batches are drawn, such as Clusters;
            None for one group.
        tokenizing_processes: the number of further processes that tokenize the rows at the first start; None for one
            for each CPU if there are many rows. The rows do not depend on it.
        streaming: whether rows are read and tokenized while they are trained on (see streaming.py). Without end, they
            have neither a count nor a position.
        shuffled_rows: the number of rows in the buffer that shuffles streamed rows.
        name: its name in data.sets; None if there is one set only.

    Raises:
        UserError: a value does not fit another; from `read`, the data cannot be read or trained on.

    Attributes:
        labels: the kind of the labels; None without labels.
        rows: all rows, after `read`.
        chosen: the positions of the rows to train on, after `read`.
        row_count: their number, or that it is not known, after `read`.
        held_out: the positions of the rows that are held out, after `read`.
        classes: the number of each class by its name, in alphabetical order, after `read`.
        view_roles: the role of each view of a batch, after `read`.
        kind: what the rows have, after `read`.
        groups: the group of each row of `chosen`, after `read`; None without a sampler.
        fingerprint: a hash of the content of `train`, after `read`.
        key: a text that changes with the rows, after `read`.
        stream: the rows that are streamed, after `read`.
    """

    train: str | Path | Sequence[str]
    columns: Sequence[int | str] | None = None
    on_invalid_row: Literal["error", "drop", "blank"] = "error"
    format: Format | None = None
    separator: str | None = None
    header: bool | None = None
    encoding: str | None = None
    split: str = "train"
    label_column: int | str | None = None
    score_column: ScoreColumn = None
    label_names: Names = None
    roles: Sequence[Role] | None = None
    prompts: Sequence[str | None] | None = None
    limit: PositiveInt | None = None
    hold_out: Annotated[float, Field(ge=0)] = 0.0
    views: Mapping[Any, View | None] | View | None = None
    batch_size: PositiveInt = 64
    sampler: Callable[[RowKind], NDArray[np.integer]] | None = None
    tokenizing_processes: NonNegativeInt | None = None
    streaming: bool = False
    shuffled_rows: PositiveInt = 10_000
    name: str | None = None

    def __post_init__(self) -> None:
        if self.label_column is not None and self.score_column is not None:
            raise UserError("a row has a class or a score: set label_column or score_column to null")
        self.labels: LabelKind | None = None if self.label_column is None else "classes"
        if self.score_column is not None:
            self.labels = "scores" if isinstance(self.score_column, int | str) else "score_lists"
        named = {"view": self.views} if isinstance(self.views, View) else self.views or {}
        self._views: dict[Any, View] = {name: view for name, view in named.items() if view}
        self._documents = any(view.num_following for view in self._views.values())
        if self._documents and any((self.hold_out, self.columns, self.labels)):
            raise UserError(
                "a view uses the next sentences of a text file, which has no columns, and whose rows cannot be held out"
            )
        classes = self.labels == "classes" and self.label_names is None
        if self.streaming and any((self.limit, self.hold_out, self._documents, classes, self.sampler)):
            raise UserError(
                "streaming=true: not all rows are known, so set limit=null, hold_out=0, label_names=[...] for classes, "
                "and use no sampler and no view of the next sentences"
            )
        self.held_out: Rows = ()

    def read(
        self,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        seed: int = 42,
        evaluated: Mapping[str, Collection[str]] | None = None,
        templates: Templates | None = None,
        segment: Segmenter | None = None,
    ) -> None:
        """Read and tokenize the rows.

        Args:
            tokenizer, templates: the encoder's.
            max_length: the number of tokens read of a sentence, special tokens included.
            seed: seeds the choice of rows (`limit`) and the views.
            evaluated: the sentences of the validation and test sets, to warn if they are also training sentences.
            segment: splits a sentence into the words that are masked whole; None for those of the tokenizer.
        """
        self.seed = seed
        self._tokenize = Tokenize(tokenizer, max_length)
        self.rows = self._open()
        self._set_roles(len(self.rows[0]))
        label_range = self._number_labels()
        self.chosen: Rows = range(len(self.rows))
        if not self.streaming:
            self.chosen, self.held_out = choose(self.rows, self._documents, self.hold_out, self.limit, seed)
        templates = templates or Templates(tokenizer)
        for name in self.prompts or ():
            templates.check_prompt(name)
        self._collate = ViewCollator(tokenizer, max_length, templates, segment, self.prompts or ())
        self._limits = templates.special, tokenizer.model_max_length, tokenizer.mask_token_id
        for split, sentences in ({} if self.streaming else evaluated or {}).items():
            if seen := self.rows.count(set(sentences)):
                log.warning("%d sentences of %s are in the %s set: scores may be too high", seen, self.train, split)
        self.row_count = "streamed" if self.streaming else str(len(self.chosen))
        log.info("train: %s rows with %d sentence(s) from %s", self.row_count, len(self.rows[0]), self.train)
        fewest_rows = 1 if self.labels or Role.NEGATIVE in self.view_roles else 2
        if min(len(self.chosen), self.batch_size) < fewest_rows:
            raise UserError(f"{self.train}: a batch of one row without hard negatives has no negatives")
        self._check_views()
        examples = [row[0] for row in self._tokens([int(row) for row in self.chosen[:_ROWS_TRIED]])]
        self.kind = RowKind(
            self.view_roles,
            labels=self.labels,
            label_range=label_range,
            classes=len(self.classes) or None,
            examples=examples,
            sentences=() if self.streaming else self.rows,
            used=(self.chosen, self.held_out),
            columns=self._columns,
            key=self.key,
            dataset=self.name or "",
        )
        self.groups = self.sampler(self.kind) if self.sampler else None
        if self.streaming:
            self.chosen = range(sys.maxsize)

    def _open(self) -> TokenCache:
        """Return all rows; or open the stream, and return its first rows, by which the options are checked."""
        columns = (*(self.columns or ()), *label_columns(self.label_column, self.score_column))
        layout = with_header(Layout(self.format, self.separator, self.header, self.encoding), columns)
        names = "columns", "on_invalid_row", "label_column", "score_column", "label_names"
        options = {name: getattr(self, name) for name in names}
        reading = Reading(self.train, self.split, layout, self._documents, options)
        if not self.streaming:
            rows, self.fingerprint, self.key = reading.open_cache(self._tokenize, self.tokenizing_processes)
            return rows
        self.stream = RowStream(reading, self.shuffled_rows, self.seed)
        self.fingerprint = self.key = self.stream.fingerprint
        first, _, _, unknown = self._tokenize[self.stream.first(_ROWS_TRIED)]
        if unknown:
            log.warning(unknown)
        return TokenCache(first)

    def _check_views(self) -> None:
        """Raise UserError if a view changes hardly any sentence, or does not fit the text; try it on the first rows."""
        count = min(_ROWS_TRIED, len(self.chosen))
        keys = [divmod(i, count) for i in range(_ROWS_TRIED)]  # a few rows are tried in several epochs
        rows = self.with_views(keys)
        anchors = [row[0] for row in self._tokens([int(self.chosen[row]) for _, row in keys])]
        after = self._width
        for name, view in self._views.items():
            place, after = after, after + len(view.roles)
            if isinstance(view, Dropout):
                continue
            with prefixed(f"views.{name}"):
                view.check_text([self.rows[int(self.chosen[row])][0] for row in range(count)])
                made = self._collate.tokens_of([row[place] for row in rows])
                changed = sum(not np.array_equal(*both) for both in zip(anchors, made, strict=True))
                if changed < _FEWEST_CHANGED * len(made):
                    raise UserError(
                        f"it changes {changed} of {len(made)} sentences: a view of words needs segmenter=icu if there "
                        "are no spaces between words, and a view of case a tokenizer that reads case; token_deletion "
                        "needs neither"
                    )
                log.info("views.%s: changes %d of %d sentences", name, changed, len(made))

    def _number_labels(self) -> tuple[float, float] | None:
        """Number the classes, and return the lowest and the highest label of all rows; None if they are not known."""
        self.classes: dict[str, int] = {}
        if self.labels == "classes":
            names = self.rows.classes() if self.label_names is None else class_names(self.label_names)
            self.classes = {name: number for number, name in enumerate(names)}
            log.info("labels: %d, %s", len(names), ", ".join(names[:_LABELS_SHOWN]))
            return 0, len(names) - 1
        return None if self.score_column is None or self.streaming else self.rows.score_range()

    def _set_roles(self, width: int) -> None:
        """Set the roles of the views of rows of `width` sentences; leave out dropout as the only view of pairs."""
        columns = default_roles(width)[:width] if self.roles is None else tuple(map(Role, self.roles))
        views = list(self._views.values())
        if width == 1 and any(Role.ANCHOR in view.roles for view in views):
            columns, width = (), 0  # a view takes the place of the sentence
        self._width = width  # the number of sentences of the file in a row of a batch
        only_dropout = len(views) == 1 and isinstance(views[0], Dropout) and views[0].role == Role.POSITIVE
        if only_dropout and (width == 1 or Role.POSITIVE in columns):
            self._views, views = {}, []  # the collator repeats a single sentence
        roles = (*columns, *(Role(role) for view in views for role in view.roles))
        if len(columns) != width or roles[0] != Role.ANCHOR or Role.ANCHOR in roles[1:]:
            given = f"data.roles=[{','.join(roles)}]"
            raise UserError(f"{given}: each of a row's {width} sentences needs a role, and the first is the anchor")
        made = [0 if isinstance(view, Dropout) else None for view in views for _ in view.roles]
        self.view_roles, self._columns = roles, (*range(width), *made)
        if len(roles) == 1:
            self.view_roles, self._columns = default_roles(2), (0, 0)
        needed = len(candidates(self.view_roles))
        if self.labels == "score_lists" and len(label_columns(None, self.score_column)) != needed:
            raise UserError(f"data.score_column: it needs a column for each of {needed} positives and hard negatives")

    def batch(self, keys: Sequence[RowKey], held_out: bool = False) -> dict[str, Any]:
        """Return tensors [batch, views, tokens], and `labels`, `roles` and so on (see SimCSEModule.batch_of).

        Args:
            keys: from `ContrastiveBatches`.
            held_out: whether the keys are of the rows that are held out.
        """
        chosen = self.held_out if held_out else self.chosen
        places = [int(chosen[row]) for _, row in keys]
        rows = self.with_views(keys, held_out) if self._views else self._tokens(places)
        batch: dict[str, Any] = self._collate(rows)
        if self.labels:
            names = map(self.rows.name, places)
            labels = [self.classes[name] if self.classes else [*map(float, name.split())] for name in names]
            batch["labels"] = torch.tensor(labels).squeeze(1) if self.labels == "scores" else torch.tensor(labels)
        batch["roles"] = self.view_roles
        if not self.streaming:
            batch["rows"] = np.array(places)
        if self.name is not None:
            batch["dataset"] = self.name
        return batch

    def streamed_batch(self, number: int, block: Block) -> dict[str, Any]:
        """Return a batch of streamed rows, each with its label or score; see `batch`."""
        self.rows = TokenCache(self._tokenize[block][0])
        return self.batch([(number, row) for row in range(len(block))])

    def _tokens(self, places: Sequence[int]) -> list[tuple[Tokens, ...]]:
        """Return the tokens of rows; they are not those of the cache if a segmenter marks their words."""
        if not self._collate.segment:
            return [self.rows.tokens(place) for place in places]
        rows = [self.rows[place] for place in places]
        marked = map(np.asarray, self._collate.tokens_of([sentence for row in rows for sentence in row]))
        return [tuple(itertools.islice(marked, len(row))) for row in rows]

    def with_views(self, keys: Sequence[RowKey], held_out: bool = False) -> list[tuple[Sentence, ...]]:
        """Return the rows of a batch, each with its views; arguments as in `batch`."""
        chosen = self.held_out if held_out else self.chosen
        places = [(epoch, int(chosen[row])) for epoch, row in keys]
        tokens = self._tokens([place for _, place in places])
        made: list[Sequence[Sentence]] = []
        for number, view in enumerate(self._views.values()):
            inputs = []
            for (epoch, place), row in zip(places, tokens, strict=True):
                seed = f"{self.seed}-{0 if view.once else epoch}-{place}"
                if number and not view.shared_random:
                    seed += f"-{number}"
                following = self.rows.following(place, view.num_following)
                inputs.append(ViewInput(self.rows[place][0], following, random.Random(seed), row[0], *self._limits))
            sentences: Sequence[Any] = view(inputs)
            made += zip(*sentences, strict=True) if len(view.roles) > 1 else [sentences]
        return [(*row[: self._width], *views) for row, *views in zip(tokens, *made, strict=True)]
