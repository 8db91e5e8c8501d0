"""A training set: its source, the views of its rows, and its batches."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.collators import LabeledViewCollator, ViewCollator
from simcse_pl.data.dataset import RowKey, TrainingDataset
from simcse_pl.data.readers.row_reader import NamedRows, Warn, fingerprint, iterate_documents, iterate_rows
from simcse_pl.data.token_cache import open_token_cache
from simcse_pl.data.views.sentences import Dropout
from simcse_pl.data.views.view import View
from simcse_pl.models.roles import LabelKind, Role, default_roles
from simcse_pl.models.templates import Templates
from simcse_pl.utils.errors import UserError, did_you_mean

log = logging.getLogger(__name__)

_LABELS_SHOWN = 10


@dataclass
class TrainingSet:
    """Rows of sentences to train on, and the views that are made from them.

    Args:
        train: the data (see row_reader.iterate_rows).
        columns, on_invalid_row, header, split: how to read it (see row_reader.iterate_rows).
        label_column: the column of the classes, by name or by position from 0; batches then have int64 `labels`.
        score_column: in place of `label_column`, the column of the scores; batches then have float32 `labels`.
        roles: the role of each column, the anchor first; None for anchor, positive, then hard negatives.
        limit: the number of rows to train on, chosen at random and kept in order; None for all.
        views: the views to add to each row, by name. Without views, a row of one sentence is its own positive. If
            `Dropout` is the only view, it is added only to rows without a positive.
        batch_size: the rows of a contrastive batch, over all devices together.
        name: its name in data.sets; None if there is one set only.

    Raises:
        UserError: a value is out of range or does not fit another; from `read`, the data cannot be read or trained on.

    Attributes:
        rows: the rows, after `read`.
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
    views: Mapping[str, View] = field(default_factory=dict)
    batch_size: int = 64
    name: str | None = None
    rows: TrainingDataset = field(init=False)
    view_roles: tuple[Role, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise UserError(f"data.batch_size={self.batch_size}: it must be at least 1")
        if self.label_column is not None and self.score_column is not None:
            both = f"data.label_column={self.label_column} and data.score_column={self.score_column}"
            raise UserError(f"{both}: a row has a class or a score: set one of them to null")
        added = [_role(view.role, f"views.{name}.role") for name, view in self.views.items()]
        if Role.ANCHOR in added:
            name = list(self.views)[added.index(Role.ANCHOR)]
            raise UserError(
                f"views.{name}.role=anchor: views are made of the anchor: choose positive, negative or other"
            )
        self._added = tuple(added)
        self._columns = None if self.roles is None else tuple(_role(role, "data.roles") for role in self.roles)
        if self._columns is not None and (self._columns[:1] != (Role.ANCHOR,) or Role.ANCHOR in self._columns[1:]):
            given = f"data.roles=[{','.join(self._columns)}]"
            raise UserError(f"{given}: a row needs one anchor, the first of data.columns")
        if any(view.num_following for view in self.views.values()):
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
        documents = any(view.num_following for view in self.views.values())

        def read(warn: Warn) -> NamedRows:
            if documents:
                return iterate_documents(self.train, self.on_invalid_row, warn)
            return iterate_rows(self.train, *how, warn)

        for name, view in self.views.items():
            lower, upper = tokenizer(["a", "A"], add_special_tokens=False)["input_ids"]
            if view.changes_case and lower == upper:
                log.warning("views.%s changes nothing, because the tokenizer ignores case: choose a cased model", name)

        cache = open_token_cache(read, (fingerprint(self.train, self.split), documents, *how), tokenizer, max_length)
        for split, sentences in (evaluated or {}).items():
            if seen := cache.count(set(sentences)):
                log.warning("%d sentences of %s are in the %s set: scores may be too high", seen, self.train, split)
        width = len(cache.sentences[0])
        views, self.view_roles = self._views_of(width)
        if templates and len(templates.texts) > (count := len(self.view_roles)):
            given = len(templates.texts)
            raise UserError(f"model.template has {given} templates, but the rows have {count} views: remove some")
        self.rows = TrainingDataset(
            cache.sentences,
            cache.tokens,
            views,
            labels=cache.names if self.labels else None,
            scores=self.labels == "scores",
            documents=cache.names if documents else None,
            limit=self.limit,
            seed=seed,
            longest=tokenizer.model_max_length,
            special=_special_tokens(tokenizer),
            mask=tokenizer.mask_token_id,
        )
        self._collate = ViewCollator(tokenizer, max_length, templates)
        log.info("train: %d rows of %d from %s", len(self.rows), width, self.train)
        if classes := self.rows.classes:
            log.info("labels: %d, %s", len(classes), ", ".join(classes[:_LABELS_SHOWN]))
        elif not self.labels and min(len(self.rows), self.batch_size) == 1 and Role.NEGATIVE not in self.view_roles:
            cause = "data.batch_size=1" if self.batch_size == 1 else f"{self.train} has one row to train on"
            raise UserError(f"{cause}: a batch of one row without hard negatives has no negatives")

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

    def batch(self, keys: Sequence[RowKey]) -> dict[str, Any]:
        """Return tensors [batch, views, tokens], and `labels`, `roles` and `dataset` (see SimCSEModule.embed)."""
        rows: Any = self.rows[keys]
        batch: dict[str, Any] = (LabeledViewCollator(self._collate) if self.labels else self._collate)(rows)
        if self.view_roles != default_roles(len(self.view_roles)):
            batch["roles"] = self.view_roles
        if self.name is not None:
            batch["dataset"] = self.name
        return batch


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Return the numbers of special tokens that the tokenizer adds at the start and at the end of a sentence."""
    own, ids = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
    start = next(i for i in range(len(ids)) if ids[i : i + len(own)] == own)
    return start, len(ids) - start - len(own)


def _role(given: str, option: str) -> Role:
    if given not in list(Role):
        raise UserError(f"{option}={given}: choose one of {', '.join(Role)}{did_you_mean(str(given), list(Role))}")
    return Role(given)
