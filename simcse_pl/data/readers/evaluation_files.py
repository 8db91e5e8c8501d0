"""Rows of validation and test files: scored pairs, and queries with their positives."""

import unicodedata
from collections.abc import Sequence

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from simcse_pl.data.readers.formats import text_problem
from simcse_pl.data.readers.labels import Names, label_text
from simcse_pl.data.readers.layout import Layout
from simcse_pl.data.readers.row_reader import position_of
from simcse_pl.data.readers.sources import open_source
from simcse_pl.utils.errors import UserError, prefixed
from simcse_pl.utils.text import as_number

Columns = Sequence[int | str] | None


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class EvaluationFile(Layout):
    """A file, and how to read it.

    Args:
        file: the file, or a dataset of the hub.
        columns: the columns to read, by name or by position from 0; None for all.
        split: the split of a dataset of the hub; None for the split that is measured.
        label_names: the words for the labels 0, 1, ...; None for numbers and the words that are known.
        format, separator, header, encoding: how the file is written; see Layout.
    """

    file: str
    columns: Columns = None
    split: str | None = None
    label_names: Names = None


def read_cells(
    source: EvaluationFile, sentences: int, split: str, score: bool = False, more: bool = False
) -> list[tuple[str, list[str]]]:
    """Return the place and the first cells of each row of a file, as text; null is ''.

    Args:
        source: the file.
        sentences: the number of columns of sentences.
        split: the split that is measured.
        score: whether a column of scores or labels follows.
        more: whether all further columns have sentences too; their number may differ.

    Raises:
        UserError: the file does not exist, is damaged, or has no rows or too few columns, a sentence is not text, or a
            column of sentences has only numbers.
    """
    file, columns = source.file, source.columns
    table = open_source(file, source, source.split or split, columns or ())
    with prefixed("columns"):
        chosen = None if columns is None else [position_of(table, column) for column in columns]
    at_least = sentences + score
    rows = []
    for place, cells in table.records:
        if isinstance(cells, str) or (chosen is None and not more and table.problem(cells)):
            raise UserError(f"{file}, {place}: {table.problem(cells)}")
        if chosen is not None:
            cells = [cells[i] for i in chosen if i < len(cells)]
        if len(cells) < at_least:
            raise UserError(f"{file}, {place}: {len(cells)} columns, and {at_least} are needed")
        texts = ["" if cell is None else cell for cell in (cells if more else cells[:at_least])]
        label = [label_text(texts.pop())] if score else []
        for i, cell in enumerate(texts):
            if problem := text_problem(cell):
                raise UserError(f"{file}, {place}: column {i} {problem}")
        rows.append((place, [unicodedata.normalize("NFC", str(cell).strip()) for cell in (*texts, *label)]))
    if not rows:
        raise UserError(f"{file} has no rows")
    for i in range(max(len(cells) for _, cells in rows) - score):
        column = [cells[i] for _, cells in rows if i < len(cells) and cells[i]]
        if column and None not in map(as_number, column):
            names = ", ".join(map(str, table.header or range(table.width)))
            raise UserError(
                f"{file}: column {i} of those that are read has numbers, not sentences: choose some of its columns "
                f"({names}), as in {{file: {file}, columns: [...]}}"
            )
    return rows
