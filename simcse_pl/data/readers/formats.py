"""File formats: read the rows of text, csv, tsv, jsonl and parquet files, each with its place in the file.

Error messages have the line of an invalid row, and `on_invalid_row=drop` skips it. pandas and `datasets` give neither
for all of these formats.
"""

import csv
import itertools
import json
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow.parquet

from simcse_pl.utils.errors import UserError, first_line, reraise_as
from simcse_pl.utils.files import STANDARD_INPUT, Unreadable, check_is_file, read_lines
from simcse_pl.utils.validation import LONE_SURROGATE, as_number

S = TypeVar("S")
T = TypeVar("T")
Cells = Sequence[Any] | Unreadable
Records = Iterator[tuple[str, Cells]]  # a place such as `line 7`, and the row there

_MAX_WORDS_OF_A_NAME = 3
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
_SENTENCE_ENDS = (".", "!", "?", "。", "！", "？")


@dataclass(frozen=True)
class OpenedTable:
    """A file's rows, read one by one.

    Args:
        records: the rows.
        width: the number of columns that a row should have.
        header: the columns' names, or None if the file has none.
    """

    records: Records
    width: int
    header: list[str] | None = None

    def name(self, column: int) -> str | int:
        """Return a column's name, or its position if the file has no names."""
        return column if self.header is None else self.header[column]

    def select(self, columns: Sequence[int]) -> "OpenedTable":
        """Return the table with these columns only; cells that a short row lacks are ''."""
        records = parse_records(self.records, lambda row: [row[i] if i < len(row) else "" for i in columns])
        return OpenedTable(records, len(columns), [str(self.name(i)) for i in columns])


def open_table(path: Path, header: bool | None = True) -> OpenedTable:
    """Open a file, whose format follows from the end of its name.

    Args:
        path: ends in .txt, .csv, .tsv or .jsonl, or in one of these and .gz, or in .parquet; or `-`, standard input
            as text.
        header: whether the first row of a csv or tsv file has the columns' names. None assumes that it has, and checks
            that its cells look like names.

    Raises:
        UserError: the file does not exist, has an unknown format or cannot be read (also from the iterator), or a
            cell of the first row fails this check.
    """
    if str(path) != STANDARD_INPUT:
        check_is_file(path)
    match file_format(path):
        case ".txt":
            return OpenedTable(parse_lines(path, lambda line: [line]), width=1)
        case ".csv":
            return _delimited(path, _csv_records(path), header)
        case ".tsv":  # no quoting: sentences have stray quotation marks
            return _delimited(path, parse_lines(path, lambda line: line.split("\t")), header)
        case ".jsonl":
            return _jsonl(path)
        case ".parquet":
            return _parquet(path)
    raise UserError(f"{path}: its name should end in .txt, .csv, .tsv, .jsonl (or one of these and .gz) or .parquet")


def file_format(path: Path) -> str:
    """Return the ending of a file's name without .gz; that of standard input is .txt."""
    return ".txt" if str(path) == STANDARD_INPUT else Path(path.name.lower().removesuffix(".gz")).suffix


def lines_of(path: Path) -> Iterator[tuple[str, str | Unreadable]]:
    """Yield the place and the text of each line of a file, gzipped or not."""
    for number, line in enumerate(read_lines(path), 1):
        yield f"line {number}", line


def parse_records(
    records: Iterable[tuple[str, S | Unreadable]], parse: Callable[[S], T | Unreadable]
) -> Iterator[tuple[str, T | Unreadable]]:
    """Yield the place and the parsed content of each record."""
    return ((place, content if isinstance(content, Unreadable) else parse(content)) for place, content in records)


def parse_lines(path: Path, parse: Callable[[str], T | Unreadable]) -> Iterator[tuple[str, T | Unreadable]]:
    """Yield the place and the parsed content of each line that is not blank."""
    lines = (record for record in lines_of(path) if isinstance(record[1], Unreadable) or record[1].strip())
    return parse_records(lines, parse)


def read_documents(path: Path) -> Records:
    """Yield the sentences of a text file, each with the place of the blank line before its document as its name."""
    document = "start"
    for place, line in lines_of(path):
        if isinstance(line, Unreadable):
            yield place, line
        elif line.strip():
            yield place, [line, document]
        else:
            document = place


def text_problem(cell: Any) -> str | None:
    """Return why a cell is not text that a tokenizer can read, or None."""
    if not isinstance(cell, str):
        return f"is not text: {reprlib.repr(cell)}"
    if not cell.isascii() and LONE_SURROGATE.search(cell):  # isascii() is fast
        return f"has a lone surrogate, half of a character ({cell[:20]!a})"
    return None


def is_number(cell: str) -> bool:
    """Return whether a cell is a number, with a point or a comma for the decimals."""
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def is_finite_float32(cell: str) -> bool:
    """Return whether a cell is a number, with a point for the decimals, that float32 can hold."""
    number = as_number(cell)
    return number is not None and abs(number) <= _LARGEST_FLOAT32


def _first(path: Path, records: Iterator[tuple[str, T | Unreadable]]) -> list[tuple[str, T]]:
    """Return the first record, from which the columns are known, as a list; an empty list without records."""
    for place, content in records:
        if isinstance(content, Unreadable):
            raise UserError(f"{path}, {place}: {content.problem}")
        return [(place, content)]
    return []


def _delimited(path: Path, records: Records, header: bool | None) -> OpenedTable:
    first = _first(path, records)
    width = sum(len(cells) for _, cells in first)
    if header is False:
        return OpenedTable(itertools.chain(first, records), width)
    names = [name.strip() for _, cells in first for name in cells]
    for name in names if header is None else ():
        if not looks_like_a_name(name):
            advice = "set header=false if the file has no header, header=true if this is the header"
            raise UserError(f"{path}, {first[0][0]}: {reprlib.repr(name)} does not look like a column name; {advice}")
    return OpenedTable(records, width, names)


def looks_like_a_name(cell: str) -> bool:
    """Return whether a cell is short, and neither a sentence nor a number."""
    sentence = cell.rstrip(" \"'”’)").endswith(_SENTENCE_ENDS) or len(cell.split()) > _MAX_WORDS_OF_A_NAME
    return not sentence and not is_number(cell)


def _csv_records(path: Path) -> Records:
    unreadable: list[Unreadable] = []  # lines of the current row

    def text(line: str | Unreadable) -> str:
        if isinstance(line, Unreadable):
            unreadable.append(line)
        return "?\n" if isinstance(line, Unreadable) else line + "\n"

    csv.field_size_limit(sys.maxsize)
    reader = csv.reader((text(line) for _, line in lines_of(path)), strict=True)
    while True:
        place = f"line {reader.line_num + 1}"
        try:
            cells: Cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            cells = Unreadable(f"{error} (is a quotation mark missing?)")
        if cells:
            yield place, unreadable[-1] if unreadable else cells
        unreadable.clear()


def _jsonl(path: Path) -> OpenedTable:
    """The keys of the first object are the columns."""
    objects = parse_lines(path, _json_object)
    first = _first(path, objects)
    keys = [key for _, values in first for key in values]
    records = parse_records(itertools.chain(first, objects), lambda values: [values.get(key) for key in keys])
    return OpenedTable(records, len(keys), keys)


def _json_object(line: str) -> dict[str, Any] | Unreadable:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Unreadable(f"not JSON: {first_line(error)}")
    return value if isinstance(value, dict) else Unreadable("not a JSON object")


def _parquet(path: Path) -> OpenedTable:
    damaged = f"{path} cannot be read"
    with reraise_as(damaged):
        file = pyarrow.parquet.ParquetFile(path)

    def rows() -> Iterator[Sequence[Any]]:
        with reraise_as(damaged):
            for batch in file.iter_batches():
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    names = list(file.schema_arrow.names)
    return OpenedTable(((f"row {i}", row) for i, row in enumerate(rows(), 1)), len(names), names)
