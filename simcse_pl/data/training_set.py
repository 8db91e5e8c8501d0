"""A training set: its source, how it is read, and the views of its rows."""

import itertools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.collator import TrainingRows, ViewCollator
from simcse_pl.data.rows import LabelledRows, ReadOptions, Warn, rows_of
from simcse_pl.data.sampler import Rows
from simcse_pl.data.sources import content_hash
from simcse_pl.data.token_cache import TokenCache, Tokenize, open_token_cache
from simcse_pl.data.view import Dropout, Segmenter, View
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import MaxLength, by_position
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import LabelKind, Role, candidates, default_roles

log = logging.getLogger(__name__)

_LABELS_SHOWN = 10
_ROWS_TRIED = 128


@dataclass(frozen=True)
class TrainingSet(ReadOptions):
    """Where rows of sentences to train on are, how they are read, and the views that are made from their anchors.

    If a view needs the next sentences, the last row of each document is left out.

    With a `label_column`, batches have int64 `labels`, numbers of classes: in the order of `label_names`, or in
    alphabetical order. With a `score_column`, they have float32 `labels`, [batch]. A list has a column for each
    positive and hard negative, in their order; labels are then [batch, columns].

    Args:
        train: the data (see sources.open_source).
        negatives: the number of hard negatives of a row in a batch. They are drawn anew in each epoch from those of the
            row, whose cells may be lists or empty. If a row has too few, a batch has copies, which a contrastive loss
            leaves out. Without `columns`, these are query, pos and neg. None takes one sentence from each column.
        positives: the number of positives, drawn like the hard negatives if `negatives` is given.
        roles: the role of each column, the anchor first; None for anchor, positive, then hard negatives.
        prompts: the name of each column's prompt, one of the encoder's `prompts`, or None for its template or none;
            further columns and views have the last name. None for those of a retrieval's validation, or the template.
        limit: the number of rows to train on, chosen at random from those that are not held out, and kept in order;
            None for all of them.
        hold_out: the share of the rows to hold out, or their number if it is 1 or more, chosen at random. They are not
            trained on; their loss is measured.
        views: the views to add to each row, by name. Without views, a row of one sentence is its own positive. If
            `Dropout` is the only view, it is added only to rows without a positive. A view that is None adds nothing;
            a single view needs no name. A first view with the role `anchor` takes the place of the row's only sentence.
        batch_size: the rows of a contrastive batch, over all devices together.
        sampler: from the rows to the group of each row that is trained on, of which batches are drawn, such as
            Clusters; None for one group.
        tokenizing_processes: the number of further processes that tokenize the rows at the first start; None for one
            for each CPU if there are many rows. The rows do not depend on it.
        name: its name in data.sets; None if there is one set only.
    """

    train: str | Path | Sequence[str]
    _: KW_ONLY
    negatives: NonNegativeInt | None = None
    positives: PositiveInt = 1
    roles: Sequence[Role] | None = None
    prompts: Sequence[str | None] | None = None
    limit: PositiveInt | None = None
    hold_out: Annotated[float, Field(ge=0)] = 0.0
    views: Mapping[Any, View | None] | View | None = None
    batch_size: PositiveInt = 64
    sampler: Callable[[TrainingRows], NDArray[np.integer]] | None = None
    tokenizing_processes: NonNegativeInt | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.label_column is not None and self.score_column is not None:
            raise UserError("a row has a class or a score: set label_column or score_column to null")
        if self.positives > 1 and self.negatives is None:
            raise UserError(f"positives={self.positives}: rows are drawn only if negatives is set, such as negatives=0")
        if self.documents and any((self.hold_out, self.columns, self.labels, self.prompt_column is not None)):
            raise UserError(
                "a view uses the next sentences of a text file, which has no columns, and whose rows cannot be held out"
            )

    @property
    def labels(self) -> LabelKind | None:
        """The kind of the labels; None without labels."""
        if self.score_column is not None:
            return "scores" if isinstance(self.score_column, int | str) else "score_lists"
        return None if self.label_column is None else "classes"

    @property
    def named_views(self) -> dict[Any, View]:
        """The views by name, without those that are None."""
        named = {"view": self.views} if isinstance(self.views, View) else self.views or {}
        return {name: view for name, view in named.items() if view}

    @property
    def documents(self) -> bool:
        """Whether a view needs the next sentences."""
        return any(view.num_following for view in self.named_views.values())

    def read(
        self,
        tokenizer: PreTrainedTokenizerBase,
        max_length: MaxLength,
        seed: int = 42,
        evaluated: Mapping[str, Collection[str]] | None = None,
        templates: Templates | None = None,
        segment: Segmenter | None = None,
        validated: Sequence[str | None] = (),
    ) -> TrainingRows:
        """Read and tokenize the rows.

        Args:
            tokenizer, templates: the encoder's.
            max_length: the number of tokens read of a sentence, or by position or role (see SentenceDataModule).
            seed: seeds the choice of rows (`limit`) and the views.
            evaluated: the sentences of the validation and test sets, to warn if they are also training sentences.
            segment: splits a sentence into the words that are masked whole; None for those of the tokenizer.
            validated: the prompts in validation, which rows of several sentences have without `prompts` of their own.
        """
        templates = templates or Templates(tokenizer)
        for name in self.prompts or ():
            templates.check_prompt(name)
        roles = default_roles(3) if self.roles is None or self.negatives is not None else tuple(map(Role, self.roles))
        cache = self._open(Tokenize(tokenizer, by_position(max_length, roles), self.labels, self.negatives is not None))
        prompts = self._prompts(templates, validated, several=len(cache[0]) > 1)
        if segment and templates.reads_text(prompts):
            raise UserError("template_as_text=always: words of a segmenter cannot be masked whole in a joined text")
        drawn = None if self.negatives is None else (self.positives, self.negatives)
        views, width, roles, columns = self._batch_views(1 + sum(drawn) if drawn else len(cache[0]))
        numbers = self._class_numbers(cache)
        label_range = None if self.score_column is None else cache.score_range()
        chosen: Rows = range(len(cache))
        held_out: Rows = ()
        if self.documents or self.hold_out or self.limit is not None:
            from simcse_pl.data.orders import choose

            chosen, held_out = choose(cache, self.documents, self.hold_out, self.limit, seed)
        rows = TrainingRows(
            views=views,
            width=width,
            roles=roles,
            columns=columns,
            labels=self.labels,
            label_range=(0, len(numbers) - 1) if numbers else label_range,
            classes=len(numbers) or None,
            dataset=self.name or "",
            train=self.train,
            cache=cache,
            chosen=chosen,
            held_out=held_out,
            seed=seed,
            class_numbers=numbers,
            drawn=drawn,
            collate=ViewCollator(tokenizer, by_position(max_length, roles), templates, segment, prompts),
        )
        examples = [row[0] for row in rows.tokens([int(row) for row in chosen[:_ROWS_TRIED]])]
        return replace(rows, warnings=self._check(rows, evaluated or {}), examples=examples)

    def _prompts(self, templates: Templates, validated: Sequence[str | None], several: bool) -> Sequence[str | None]:
        """Return the names of the columns' prompts; warn if rows have none, and the validation or the encoder has."""
        named = validated or [name for name, text in templates.prompts.items() if text]
        if self.prompts is not None or not named:
            return self.prompts or ()
        names = ", ".join(map(str, named))
        if validated and several:
            log.info("%s: prompts as in validation, %s (data.prompts=[null]: none)", self.train, names)
            return validated
        # a sentence may be a query or a document, and a pair two of one kind
        whose = "the validation" if validated else "the encoder"
        advice = "choose one for each column by data.prompts=[NAME,NAME], or none by [null]"
        log.warning("%s: it trains without the prompts of %s, %s: %s", self.train, whose, names, advice)
        return ()

    def _open(self, tokenize: Tokenize) -> TokenCache:
        """Return all rows with their tokens."""
        options: ReadOptions = self
        roles: tuple[Role, ...] = ()
        if self.negatives is not None:
            from simcse_pl.data.candidates import COLUMNS

            columns = self.columns or COLUMNS
            roles = tuple(map(Role, self.roles or default_roles(len(columns))))
            if self.labels or self.documents or Role.OTHER in roles or len(roles) != len(columns):
                needed = "an anchor, positives and hard negatives only, a role for each of data.columns, and no labels"
                raise UserError(f"data.negatives={self.negatives}: such rows have {needed}")
            options = replace(self, columns=columns)
        before = content_hash(self.train, self.split)  # first, so that a file that is replaced meanwhile is noticed
        table, any_order = options.open(self.train), self.roles is not None
        if self.negatives is not None and not (self.columns or self.prompt_column) and "prompt" in (table.header or ()):
            log.info("%s: prompt is not read; data.prompt_column=prompt puts it before the anchor", self.train)

        def read(warn: Warn) -> LabelledRows:
            if self.documents:
                from simcse_pl.data.documents import documents_of

                yield from documents_of(table, self.on_invalid_row, warn)
            else:
                yield from rows_of(table, options, any_order=any_order, roles=roles, warn=warn)
            if content_hash(self.train, self.split) != before:
                raise UserError(f"{self.train} changed while it was read: start again")

        how = [getattr(options, field.name) for field in fields(ReadOptions)]
        key = before, table.layout, self.documents, any_order, roles, how
        return open_token_cache(read, key, tokenize, self.tokenizing_processes, before)

    def _batch_views(self, width: int) -> tuple[dict[Any, View], int, tuple[Role, ...], tuple[int | None, ...]]:
        """Return `views`, `width`, `roles` and `columns` of TrainingRows, for rows of `width` sentences.

        Dropout as the only view of pairs is left out.
        """
        views, is_drawn = self.named_views, self.negatives is not None
        roles = default_roles(width)[:width] if self.roles is None else tuple(map(Role, self.roles))
        if self.negatives is not None:
            roles = (Role.ANCHOR, *[Role.POSITIVE] * self.positives, *[Role.NEGATIVE] * self.negatives)
        if width == 1 and any(Role.ANCHOR in view.roles for view in views.values()):
            roles, width = (), 0  # a view takes the place of the sentence
        only = next(iter(views.values())) if len(views) == 1 else None
        if isinstance(only, Dropout) and only.role == Role.POSITIVE and (width == 1 or Role.POSITIVE in roles):
            views = {}  # the collator repeats a single sentence
        has_role_each = len(roles) == width
        columns: list[int | None] = [0, *[None] * (width - 1)] if is_drawn else [*range(width)]
        for view in views.values():
            roles += tuple(map(Role, view.roles))
            columns += [0 if isinstance(view, Dropout) else None] * len(view.roles)
        if not has_role_each or roles[0] != Role.ANCHOR or Role.ANCHOR in roles[1:]:
            given = f"data.roles=[{','.join(roles)}]"
            raise UserError(f"{given}: each of a row's {width} sentences needs a role, and the first is the anchor")
        if len(roles) == 1:
            roles, columns = default_roles(2), [0, 0]
        needed = len(candidates(roles))
        if self.labels == "score_lists" and len(self.label_columns) != needed:
            raise UserError(f"data.score_column: it needs a column for each of {needed} positives and hard negatives")
        return views, width, roles, tuple(columns)

    def _class_numbers(self, cache: TokenCache) -> dict[str, int]:
        """Return the number of each class by its name: in alphabetical order, or in that of `label_names`."""
        if self.labels != "classes":
            return {}
        from simcse_pl.data.labels import class_names

        names = cache.classes() if self.label_names is None else class_names(self.label_names)
        if len({*names}) < len(names):
            raise UserError(f"data.label_names={list(names)}: each class has one name")
        log.info("labels: %d, %s", len(names), ", ".join(names[:_LABELS_SHOWN]))
        return {name: number for number, name in enumerate(names)}

    def _check(self, rows: TrainingRows, evaluated: Mapping[str, Collection[str]]) -> list[str]:
        """Warn if evaluated sentences are training sentences; raise UserError if the rows cannot be trained on."""
        warnings = []
        for split, sentences in evaluated.items():
            if seen := rows.cache.count(set(sentences)):
                warnings.append(f"{seen} sentences of {self.train} are in the {split} set: scores may be too high")
                log.warning(warnings[-1])
        held_out = [sentence for position in rows.held_out for sentence in rows.cache[int(position)]]
        if held_out and (repeated := rows.cache.count(set(held_out)) - len(held_out)):
            warnings.append(f"{repeated} sentences of {self.train} are also in rows held out: val/loss may be too low")
            log.warning(warnings[-1])
        log.info("train: %s from %s", rows.size, self.train)
        fewest_rows = 1 if rows.labels or Role.NEGATIVE in rows.roles else 2
        if min(len(rows.chosen), self.batch_size) < fewest_rows:
            raise UserError(f"{self.train}: a batch of one row without hard negatives has no negatives")
        self._warn_of_equal(rows)
        if rows.views:
            from simcse_pl.data.make_views import check_views

            check_views(rows)
        return warnings

    def _warn_of_equal(self, rows: TrainingRows) -> None:
        """Warn of columns that teach nothing, by some rows from all of the source."""
        compared = [int(row) for row in rows.chosen[:: -(-len(rows.chosen) // _ROWS_TRIED)]]
        if len(compared) < 2:
            return
        texts = zip(*(rows.cache[row] for row in compared), strict=False)  # rows with candidates differ in length
        columns: dict[str, Sequence[Any]] = {f"sentence {i}": column for i, column in enumerate(texts, 1)}
        if rows.labels:
            columns["the label"] = [rows.cache.label(row) for row in compared]
        for (name, column), (other, same) in itertools.combinations_with_replacement(columns.items(), 2):
            if column == same and (name != other or column.count(column[0]) == len(column)):
                what = f"{name} is always the same" if name == other else f"{name} and {other} are equal"
                log.warning("%s: %s in the %d rows that were compared: check the file", self.train, what, len(compared))
