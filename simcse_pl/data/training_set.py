"""A training set: its source, the views of its rows, and its batches."""

import itertools
import logging
import random
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.collators import Sentence, ViewCollator
from simcse_pl.data.readers.row_reader import NamedRows, Warn, fingerprint, iterate_documents, iterate_rows
from simcse_pl.data.sampler import RowKey
from simcse_pl.data.token_cache import open_token_cache
from simcse_pl.data.views.sentences import Dropout
from simcse_pl.data.views.view import View, ViewInput
from simcse_pl.models.roles import LabelKind, Role, default_roles
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import Tokens
from simcse_pl.utils.errors import UserError, did_you_mean

log = logging.getLogger(__name__)

_LABELS_SHOWN = 10


@dataclass
class TrainingSet:
    """Rows of sentences to train on, and the views that are made from their anchors.

    Each view's random generator is seeded by (seed, epoch, row), and further views also by their position, unless they
    share their random numbers. The epoch is 0 for a view that is made `once`. Keys contain the epoch because worker
    processes may live for several epochs. If a view needs the next sentences, the last row of each document is left
    out.

    Args:
        train: the data (see row_reader.iterate_rows).
        columns, on_invalid_row, header, split: how to read it (see row_reader.iterate_rows).
        label_column: the column of the classes, by name or by position from 0; batches then have int64 `labels`.
        score_column: in place of `label_column`, the column of the scores; batches then have float32 `labels`.
        roles: the role of each column, the anchor first; None for anchor, positive, then hard negatives.
        limit: the number of rows to train on, chosen at random from those that are not held out, and kept in order;
            None for all of them.
        hold_out: the share of the rows to hold out, or their number if it is 1 or more, chosen at random. They are not
            trained on; their loss is measured.
        views: the views to add to each row, by name. Without views, a row of one sentence is its own positive. If
            `Dropout` is the only view, it is added only to rows without a positive.
        batch_size: the rows of a contrastive batch, over all devices together.
        name: its name in data.sets; None if there is one set only.

    Raises:
        UserError: a value is out of range or does not fit another; from `read`, the data cannot be read or trained on;
            from `batch`, a view has too many tokens.

    Attributes:
        rows: all rows, after `read`.
        chosen: the positions of the rows to train on, after `read`.
        held_out: the positions of the rows that are held out, after `read`.
        classes: the number of each class by its name, in alphabetical order, after `read`.
        view_roles: the role of each view of a batch, after `read`.
    """

    train: str | Path
    columns: Sequence[int | str] | None = None
    on_invalid_row: str = "error"
    header: bool | None = None
    split: str = "train"
    label_column: int | str | None = None
    score_column: int | str | None = None
    roles: Sequence[str] | None = None
    limit: int | None = None
    hold_out: float = 0.0
    views: Mapping[str, View] = field(default_factory=dict)
    batch_size: int = 64
    name: str | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise UserError(f"data.batch_size={self.batch_size}: it must be at least 1")
        if not self.hold_out >= 0:
            raise UserError(f"data.hold_out={self.hold_out}: it must be a share, or a number of rows")
        if self.label_column is not None and self.score_column is not None:
            both = f"data.label_column={self.label_column} and data.score_column={self.score_column}"
            raise UserError(f"{both}: a row has a class or a score: set one of them to null")
        added = [_role(view.role, f"views.{name}.role") for name, view in self.views.items()]
        if Role.ANCHOR in added:
            name = list(self.views)[added.index(Role.ANCHOR)]
            raise UserError(
                f"views.{name}.role=anchor: views are made of the anchor: choose positive, negative or other"
            )
        self.held_out: Sequence[int] = ()
        self._added = tuple(added)
        self._columns = None if self.roles is None else tuple(_role(role, "data.roles") for role in self.roles)
        if self._columns is not None and (self._columns[:1] != (Role.ANCHOR,) or Role.ANCHOR in self._columns[1:]):
            given = f"data.roles=[{','.join(self._columns)}]"
            raise UserError(f"{given}: a row needs one anchor, the first of data.columns")
        self._documents = any(view.num_following for view in self.views.values())
        if self._documents:
            if self.hold_out:
                raise UserError("data.hold_out: a view uses the next sentences, which may be held out: set it to 0")
            for option in ("columns", "label_column", "score_column"):
                if getattr(self, option) is not None:
                    why = "a view uses the next sentences in a text file, which has no columns"
                    raise UserError(f"data.{option}={getattr(self, option)}: {why}")

    @property
    def labels(self) -> LabelKind | None:
        """The kind of the labels; None without labels."""
        if self.score_column is not None:
            return "scores"
        return None if self.label_column is None else "classes"

    def read(
        self,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        seed: int = 42,
        evaluated: Mapping[str, Collection[str]] | None = None,
        templates: Templates | None = None,
    ) -> None:
        """Read and tokenize the rows.

        Args:
            tokenizer: the encoder's tokenizer.
            max_length: the number of tokens read of a sentence, special tokens included.
            seed: seeds the choice of rows (`limit`) and the views.
            evaluated: the sentences of the validation and test sets, to warn if they are also training sentences.
            templates: the encoder's templates.
        """
        how = (self.columns, self.on_invalid_row, self.header, self.split, self.label_column, self.score_column)

        def read(warn: Warn) -> NamedRows:
            if self._documents:
                return iterate_documents(self.train, self.on_invalid_row, warn)
            return iterate_rows(self.train, *how, warn)

        for name, view in self.views.items():
            lower, upper = tokenizer(["a", "A"], add_special_tokens=False)["input_ids"]
            if view.changes_case and lower == upper:
                log.warning("views.%s changes nothing, because the tokenizer ignores case: choose a cased model", name)

        key = fingerprint(self.train, self.split), self._documents, *how
        cache = open_token_cache(read, key, tokenizer, max_length)
        for split, sentences in (evaluated or {}).items():
            if seen := cache.count(set(sentences)):
                log.warning("%d sentences of %s are in the %s set: scores may be too high", seen, self.train, split)
        self.rows, self._tokens, self._names = cache.sentences, cache.tokens, cache.names
        width = len(self.rows[0])
        self._views, self.view_roles = self._views_of(width)
        if templates and len(templates.texts) > (count := len(self.view_roles)):
            given = len(templates.texts)
            raise UserError(f"model.template has {given} templates, but the rows have {count} views: remove some")
        names = sorted(set(self._names)) if self.labels == "classes" else []
        if len(names) == 1:
            raise UserError(f"data.label_column: all rows have the label {names[0]}; at least two are needed")
        self.classes = {name: number for number, name in enumerate(names)}
        self.chosen, self.held_out = self._choose(seed)
        self._seed, self._longest, self._mask = seed, tokenizer.model_max_length, tokenizer.mask_token_id
        self._special = _special_tokens(tokenizer)
        self._collate = ViewCollator(tokenizer, max_length, templates)
        log.info("train: %d rows of %d from %s", len(self.chosen), width, self.train)
        if names:
            log.info("labels: %d, %s", len(names), ", ".join(names[:_LABELS_SHOWN]))
        elif not self.labels and min(len(self.chosen), self.batch_size) == 1 and Role.NEGATIVE not in self.view_roles:
            cause = "data.batch_size=1" if self.batch_size == 1 else f"{self.train} has one row to train on"
            raise UserError(f"{cause}: a batch of one row without hard negatives has no negatives")

    def _choose(self, seed: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the rows to train on, and those that are held out, which are chosen before `limit`."""
        rows = _followed(self._names) if self._documents else range(len(self.rows))
        held_out: Sequence[int] = ()
        if self.hold_out:
            count = round(self.hold_out if self.hold_out >= 1 else self.hold_out * len(rows))
            if not 1 <= count < len(rows):
                raise UserError(
                    f"data.hold_out={self.hold_out}: {count} of {len(rows)} rows; hold out 1 or more, not all"
                )
            held_out = sorted(random.Random(f"{seed}-hold_out").sample(rows, count))
            excluded = set(held_out)
            rows = array("q", (row for row in rows if row not in excluded))
        if self.limit is None:
            return rows, held_out
        if not 1 <= self.limit <= len(rows):
            raise UserError(f"data.limit={self.limit}: it must be 1 to {len(rows)}, the number of rows to choose from")
        return sorted(random.Random(seed).sample(rows, self.limit)), held_out

    def _views_of(self, width: int) -> tuple[Sequence[View], tuple[Role, ...]]:
        """Return the views to add to rows of `width` sentences, and the roles of all."""
        columns = self._columns or default_roles(width)[:width]
        if len(columns) != width:
            given = f"data.roles=[{','.join(columns)}] has {len(columns)} roles"
            raise UserError(f"{given}, but a row has {width} sentences: give each its role, or set data.columns")
        views, added = tuple(self.views.values()), self._added
        if added == (Role.POSITIVE,) and isinstance(views[0], Dropout) and (width == 1 or Role.POSITIVE in columns):
            views, added = (), ()  # the collator repeats a single sentence
        return views, default_roles(2) if len(columns + added) == 1 else columns + added

    def batch(self, keys: Sequence[RowKey], held_out: bool = False) -> dict[str, Any]:
        """Return tensors [batch, views, tokens], and `labels`, `roles` and `dataset` (see SimCSEModule.embed).

        Args:
            keys: from `ContrastiveBatches`.
            held_out: whether the keys are of the rows that are held out.
        """
        batch: dict[str, Any] = self._collate(self.with_views(keys, held_out))
        if self.labels:
            names = [self._names[place] for _, place in self._places(keys, held_out)]
            batch["labels"] = torch.tensor([float(n) if self.labels == "scores" else self.classes[n] for n in names])
        if self.view_roles != default_roles(len(self.view_roles)):
            batch["roles"] = self.view_roles
        if self.name is not None:
            batch["dataset"] = self.name
        return batch

    def with_views(self, keys: Sequence[RowKey], held_out: bool = False) -> list[tuple[Sentence, ...]]:
        """Return the rows of a batch, each with its views; arguments as in `batch`."""
        places = self._places(keys, held_out)
        own = [self._tokens[place] for _, place in places]
        rows: list[tuple[Sentence, ...]] = list(own)
        for number, view in enumerate(self._views):
            made = view([self._input(number, *key, row[0]) for key, row in zip(places, own, strict=True)])
            rows = [(*row, self._checked(view, one)) for row, one in zip(rows, made, strict=True)]
        return rows

    def _places(self, keys: Sequence[RowKey], held_out: bool) -> list[tuple[int, int]]:
        """Return the epoch of each row and its position in `rows`."""
        rows = self.held_out if held_out else self.chosen
        return [(epoch, rows[row]) for epoch, row in keys]

    def _input(self, number: int, epoch: int, place: int, tokens: Tokens) -> ViewInput:
        view = self._views[number]
        seed = f"{self._seed}-{0 if view.once else epoch}-{place}"
        if number and not view.shared_random:
            seed += f"-{number}"
        after = range(place + 1, min(place + 1 + view.num_following, len(self.rows)))
        following = itertools.takewhile(lambda other: self._names[other] == self._names[place], after)
        sentence, *others = (self.rows[own][0] for own in (place, *following))
        how = self._special, self._longest, self._mask
        return ViewInput(sentence, tuple(others), random.Random(seed), tokens, *how)

    def _checked(self, view: View, made: Sentence) -> Sentence:
        """Return a view; raise UserError if it has too many tokens. Text is truncated later, token ids are not."""
        if not isinstance(made, str) and len(made) > self._longest:
            long = f"{type(view).__name__} made a view of {len(made)} tokens"
            raise UserError(f"data.views: {long}, but this model reads {self._longest}: lower data.max_length")
        return made


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


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Return the numbers of special tokens that the tokenizer adds at the start and at the end of a sentence."""
    own, ids = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
    start = next(i for i in range(len(ids)) if ids[i : i + len(own)] == own)
    return start, len(ids) - start - len(own)


def _role(given: str, option: str) -> Role:
    if given not in list(Role):
        raise UserError(f"{option}={given}: choose one of {', '.join(Role)}{did_you_mean(str(given), list(Role))}")
    return Role(given)
