"""Rows: the sentences of each row of a source, checked, and its label as text or a number."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from simcse_pl.data.formats import Layout, OpenedTable
from simcse_pl.data.sources import Source, open_source
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Label, Names, Role

log = logging.getLogger(__name__)

Row = tuple[str, ...]
ScoreColumn = int | str | Sequence[int | str] | None
LabelledRows = Iterator[tuple[Row, Label | None]]
ReadLabel = Callable[[Sequence[Any]], Label | None]  # from the cells of a row
Warn = Callable[[str], None]


class _NoSentenceError(ValueError):
    """A row has no sentence."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Layout):
    """How rows of sentences are read from a file, each with its label.

    A row is a sentence, or an anchor, its positive and any hard negatives. Unicode is normalized to NFC: an accented
    letter is one character.

    Args:
        format, separator, header, encoding: how the file is written; see Layout.
        split: the split of a data set of the hub.
        columns: the columns of sentences, by name or by position from 0; None for all but the labels'.
        on_invalid_row: `error` raises an error. `drop` skips rows with empty cells, with a wrong number of columns or
            with the columns' names again, and counts them in one warning. `blank` keeps an empty cell as an empty
            sentence if another cell of its row has text, as the paper's code does, skips a row without text with
            a warning, and raises an error for other invalid rows.
        label_column: the column of the classes, text or numbers, by name or by position from 0; if None, labels are
            None.
        score_column: in place of `label_column`, the column of the scores: finite numbers, or words that are known (see
            labels.label_number); or several columns, whose scores are a list.
        label_names: the words for the labels 0, 1, ...; other labels are invalid.
        prompt_column: the column of a text that goes before the first sentence of the row; it may be empty.
    """

    split: str = "train"
    columns: Sequence[int | str] | None = None
    on_invalid_row: Literal["error", "drop", "blank"] = "error"
    label_column: int | str | None = None
    score_column: ScoreColumn = None
    label_names: Names = None
    prompt_column: int | str | None = None

    @property
    def label_columns(self) -> list[int | str]:
        """The columns of the labels or of the scores; only one of the two is given."""
        given = self.label_column if self.score_column is None else self.score_column
        return [] if given is None else [given] if isinstance(given, int | str) else [*given]

    def open(self, source: Source) -> OpenedTable:
        """Open a source by `open_source`."""
        return open_source(source, self, self.split, [*(self.columns or ()), *self.label_columns, self.prompt_column])


def read_rows(source: Source, columns: Sequence[int | str] | None = None, **options: Any) -> list[Row]:
    """Read all rows of a source; the other arguments are those of ReadOptions, the errors those of `rows_of`."""
    return [row for row, _ in iterate_rows(source, ReadOptions(columns=columns, **options))]


def iterate_sentences(source: Source, column: int | str | None = None, **options: Any) -> Iterator[str]:
    """Open a file and return an iterator over its sentences: its lines, or one column of a table.

    Args:
        source: see `open_source`; or `-`, standard input, one sentence per line.
        column: the column's name, or its position from 0; required if there are several columns.
        options: the other arguments of ReadOptions.
    """
    how = ReadOptions(columns=[column or 0], **options)
    table = how.open(source)
    if column is None and table.width > 1:
        raise UserError(f"column=NAME: {source} has {table.layout}: choose the one with the sentences")
    return (row[0] for row, _ in rows_of(table, how))


def iterate_rows(source: Source, options: ReadOptions, **further: Any) -> LabelledRows:
    """Open a source and return an iterator over its rows by `rows_of`, which takes the further arguments."""
    return rows_of(options.open(source), options, **further)


def rows_of(
    table: OpenedTable,
    options: ReadOptions,
    first: int | None = None,
    any_order: bool = False,
    labels_are_ids: bool = False,
    roles: Sequence[Role] = (),
    warn: Warn = log.warning,
) -> LabelledRows:
    """Return an iterator over the rows of sentences of a table, each with its label.

    Args:
        table: from `open_source`.
        options: how the rows are read.
        first: how many columns to read if `columns` is None, from the first on; None for all.
        any_order: whether the columns' names may contradict their order if `columns` is None (see columns.check_order).
        labels_are_ids: whether the label is the text of its cell, and not a class.
        roles: the role of each of `columns` if cells may be lists or empty; the rows are those of `read_candidates`.
        warn: called with a warning after the last row.
    """
    columns, given = options.columns, options.label_columns
    prompt = None if options.prompt_column is None else position_of(table, options.prompt_column)
    label_positions = [position_of(table, column) for column in given]
    if columns is None and first:
        positions = [position_of(table, i) for i in range(first)]
    elif columns is None:
        positions = [i for i in range(table.width) if i not in (*label_positions, prompt)]
        if not any_order and len(positions) > 1:
            from simcse_pl.data.columns import check_order

            check_order(table, positions)
    else:
        positions = [position_of(table, column) for column in columns]
    if (table.width and not positions) or not {*positions}.isdisjoint(label_positions):
        labels = f", other than {', '.join(map(str, given))}, which has the labels" if given else ""
        raise UserError(f"data.columns: {table.source} needs columns of sentences{labels}")
    if given:
        from simcse_pl.data.labels import label_text, read_label

    def labels_of(cells: Sequence[Any]) -> Label:
        if labels_are_ids:
            return table.text(label_positions[0], label_text(cells[label_positions[0]]))
        scores, names = options.score_column is not None, options.label_names
        labels = [read_label(table, column, cells[column], scores, names) for column in label_positions]
        return labels[0] if isinstance(options.score_column, int | str | None) else labels

    if prompt is not None:
        from simcse_pl.data.candidates import with_prompts

        anchor = positions[roles.index(Role.ANCHOR) if Role.ANCHOR in roles else 0]
        table = replace(table, records=with_prompts(table.records, prompt, anchor))
    rows = valid_rows(table, positions, labels_of if given else None, options.on_invalid_row, warn, roles)
    if table.width == 1:
        return rows
    from simcse_pl.data.columns import checked_rows

    return checked_rows(table, positions, rows, bool(columns), warn)


def position_of(table: OpenedTable, column: int | str) -> int:
    """Return the position of a column, given by name or by position; raise UserError if it does not exist."""
    if isinstance(column, int) and 0 <= column < table.width:
        return column
    if table.header is not None and column in table.header:
        if table.header.count(str(column)) > 1:
            raise UserError(f"{table.source} has several columns {column}: give the position of one, counted from 0")
        return table.header.index(str(column))
    unnamed = f"no column names: give a position from 0 to {table.width - 1}" if table.width else "no columns"
    has = unnamed if table.header is None else f"the columns {', '.join(table.header)}"
    raise UserError(f"no column {column} in {table.source}, which has {has}")


def valid_rows(
    table: OpenedTable,
    positions: list[int],
    read_label: ReadLabel | None,
    on_invalid_row: str,
    warn: Warn,
    roles: Sequence[Role] = (),
) -> LabelledRows:
    """Yield the valid rows of a table; see `rows_of`."""
    rows = dropped = unseen = 0
    first_dropped = first_unseen = ""
    may_lack = "; data.negatives=1 reads rows without some hard negatives" if len(positions) > 2 else ""
    for location, cells in table.records:
        try:
            row = _row(table, cells, positions, read_label, on_invalid_row == "blank", roles)
        except ValueError as error:
            skips = on_invalid_row == "drop" or (on_invalid_row == "blank" and isinstance(error, _NoSentenceError))
            if not skips:
                advice = "data.on_invalid_row=drop skips such rows in training, --on-invalid-row drop in simcse mine"
                raise UserError(f"{table.source}, {location}: {error} ({advice}{may_lack})") from None
            first_dropped = first_dropped or f"{location}: {error}{may_lack}"
            dropped += 1
            continue
        rows += 1
        if not (all(row[0]) and all(map(str.isprintable, row[0]))) and (new := sum(map(_is_unseen, row[0]))):
            unseen, first_unseen = unseen + new, first_unseen or location
        yield row
    if not rows:
        raise UserError(f"{table.source} has no {'valid ' if dropped else ''}rows")
    if unseen:
        warn(f"{table.source}: {unseen} sentences are empty, invisible or with NUL, the first at {first_unseen}")
    if dropped:
        warn = warn if on_invalid_row == "drop" else log.warning
        warn(f"{table.source}: {dropped} invalid rows dropped, the first at {first_dropped}")


def _row(
    table: OpenedTable,
    cells: Sequence[Any] | str,
    positions: list[int],
    read_label: ReadLabel | None,
    blank: bool,
    roles: Sequence[Role],
) -> tuple[Row, Label | None]:
    """Return the sentences and the label of a row; raise ValueError if it is invalid.

    With `blank`, some but not all sentences may be empty.
    """
    if isinstance(cells, str):
        raise ValueError(cells)
    if len(cells) != table.width:
        raise ValueError(f"{len(cells)} columns where there should be {table.width}")
    if table.header and all(
        str(cell).strip('\ufeff" ') == name for cell, name in zip(cells, table.header, strict=True)
    ):
        raise ValueError("the columns' names again")
    if roles:
        from simcse_pl.data.candidates import read_candidates

        return read_candidates(table, cells, positions, roles)
    row = tuple([table.text(i, "" if cells[i] is None else cells[i], blank) for i in positions])
    label = read_label(cells) if read_label else None
    if not any(row):
        raise _NoSentenceError("no sentence")
    return row, label


def _is_unseen(text: str) -> bool:
    return "\0" in text or not any(map(str.isprintable, text.replace(" ", "")))
