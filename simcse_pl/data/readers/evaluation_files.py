"""Rows of validation and test files: scored pairs, and queries with their positives."""

import logging
from collections.abc import Sequence

from simcse_pl.data.readers.formats import is_number, looks_like_a_name, text_problem
from simcse_pl.data.readers.row_reader import open_source, position_of
from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)

Columns = Sequence[int | str] | None

_NAMES_OF_QUERIES = ("query", "queries", "question", "anchor", "sentence", "sentence1")


def read_cells(
    file: str,
    sentences: int,
    header: bool | None,
    split: str,
    columns: Columns = None,
    score: bool = False,
    more: bool = False,
) -> list[tuple[str, list[str]]]:
    """Return the place and the first cells of each row of a csv, tsv, jsonl or parquet file, as text; null is ''.

    Args:
        file: the file, or a dataset of the hub.
        sentences: the number of columns of sentences.
        header: whether the first row of a csv or tsv file has the columns' names. None guesses, and logs the names:
            with a score, all cells look like names; otherwise, the first is a name of queries, such as question.
        split: the split of a dataset of the hub.
        columns: the columns to read, by name or by position from 0; None for all. With a name, the first row is read as
            the columns' names, unless `header` is False.
        score: whether a column of numbers follows.
        more: whether all further columns have sentences too.

    Raises:
        UserError: the file does not exist, is damaged, or has no rows or too few columns, a sentence is not text, or a
            column of sentences has only numbers.
    """
    by_name = any(isinstance(column, str) for column in columns or ())
    table = open_source(file, by_name if header is None else header, split)
    chosen = None if columns is None else [position_of(file, table, column) for column in columns]
    at_least = sentences + score
    rows = []
    for place, cells in table.records:
        if chosen is not None:
            cells = [cells[i] for i in chosen if i < len(cells)]
        if len(cells) < at_least:
            raise UserError(f"{file}, {place}: {len(cells)} columns, and {at_least} are needed")
        texts = ["" if cell is None else cell for cell in (cells if more else cells[:at_least])]
        for i, cell in enumerate(texts):
            if not (score and i == sentences) and (problem := text_problem(cell)):
                raise UserError(f"{file}, {place}: column {i} {problem}")
        rows.append((place, [str(cell).strip() for cell in texts]))
    if header is None and table.header is None and rows:
        first = rows[0][1]
        if all(map(looks_like_a_name, first)) if score else first[0].lower() in _NAMES_OF_QUERIES:
            log.info("%s: the first row has the columns' names, %s", file, ", ".join(rows.pop(0)[1]))
    if not rows:
        raise UserError(f"{file} has no rows")
    for i in range(max(len(cells) for _, cells in rows)):
        column = [cells[i] for _, cells in rows if i < len(cells) and cells[i]]
        if not (score and i == sentences) and column and all(map(is_number, column)):
            raise UserError(f"{file}: column {i} of those that are read has numbers, not sentences")
    return rows
