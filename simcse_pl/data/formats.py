"""File formats: read the rows of text, csv, tsv, jsonl and parquet files, each with its place in the file.

Error messages have the line of an invalid row, and `on_invalid_row=drop` skips it. pandas and `datasets` give neither
for all of these formats.
"""

import csv
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet

from simcse_pl.data.layout import DETECTED, SEPARATORS, Layout, format_of, is_header, is_quoted, separator_of
from simcse_pl.utils.errors import UserError, prefixed, reraise_as
from simcse_pl.utils.files import STANDARD, check_is_file, read_lines

# A place such as `line 7`, and the cells of the row there, or why it cannot be read.
Records = Iterator[tuple[str, Sequence[Any] | str]]
Lines = Iterable[str]

TEXT = "a sentence per line"

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON allows it; UTF-8 and tokenizers do not
_INSPECTED = 1000  # lines, to find out how a file is written
_SEPARATOR_LINE = re.compile("sep=(.)", re.IGNORECASE)  # Excel's


@dataclass(frozen=True)
class OpenedTable:
    """A file's rows, read one by one."""

    source: str  # its name, for messages
    records: Records
    width: int  # the number of columns that a row should have
    header: list[str] | None = None  # the columns' names, if the file has some
    layout: str = ""  # how the file was read, in words

    def name(self, column: int) -> str | int:
        """Return a column's name, or its position if the file has no names."""
        return column if self.header is None else self.header[column]


def open_table(path: Path, layout: Layout = DETECTED) -> OpenedTable:
    """Open a file.

    Args:
        path: ends in .txt, .csv, .tsv, .jsonl or .json, or in one of these and .gz, or in .parquet; or `-`, standard
            input as text.
        layout: how the file is written. What it leaves open follows from the name and the first 1,000 lines.

    Raises:
        UserError: the file does not exist, has an unknown format or cannot be read (also from the iterator).
    """
    ending = file_ending(path)
    if "parquet" in (layout.format, ending.removeprefix(".")):
        return _parquet(path)
    lines = read_lines(path, layout.encoding)
    head = list(itertools.islice(lines, 0 if str(path) == STANDARD else _INSPECTED))
    lines = itertools.chain(head, lines)
    with prefixed(str(path)):
        kind = layout.format or format_of(ending, head)
    if kind == "json":
        return _json(path, lines, whole="".join(head).lstrip().startswith("["))
    if kind == "text":
        return OpenedTable(str(path), ((place, [line]) for place, line in _numbered(lines)), 1, layout=TEXT)
    separator = (layout.separator or "").replace("\\t", "\t")
    if head and (line := _SEPARATOR_LINE.fullmatch(head[0].strip())):
        separator = separator or line[1]
        head, lines = head[1:], itertools.chain([""], itertools.islice(lines, 1, None))  # keeps the numbers of lines
    separator = separator or separator_of(ending, head) or ","
    return _table(path, lines, separator, is_quoted(head, separator), layout.header)


def file_ending(path: Path) -> str:
    """Return the ending of a file's name without .gz; that of standard input is .txt."""
    return ".txt" if str(path) == STANDARD else Path(path.name.lower().removesuffix(".gz")).suffix


def text_problem(cell: Any) -> str | None:
    """Return why a cell is not text that a tokenizer can read, or None."""
    if not isinstance(cell, str):
        return f"is not text: {str(cell)[:40]}"
    if not cell.isascii() and _LONE_SURROGATE.search(cell):  # isascii() is fast
        return "has a lone surrogate, half of a character"
    return None


def _numbered(lines: Lines) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each line that is not blank."""
    return ((f"line {number}", line) for number, line in enumerate(lines, 1) if line.strip())


def _table(path: Path, lines: Lines, separator: str, quoted: bool, header: bool | None) -> OpenedTable:
    if quoted:
        records = _csv_records(path, lines, separator)
    else:
        records = ((place, line.split(separator)) for place, line in _numbered(lines))
    head = list(itertools.islice(records, _INSPECTED))
    names = None
    if head and (is_header(head[0][1], [cells for _, cells in head[1:]]) if header is None else header):
        names = [name.strip() for name in head.pop(0)[1]]
    width = len(names or (head[0][1] if head else ()))
    with_names = "without column names" if names is None else f"with the column names {', '.join(names)}"
    quotes = " and quoted" if quoted and separator == "\t" else ""
    separated = f" separated by {SEPARATORS.get(separator, separator)}{quotes}"
    shape = f"{width} columns{separated}" if width > 1 else "1 column"
    return OpenedTable(str(path), itertools.chain(head, records), width, names, f"{shape}, {with_names}")


def _csv_records(path: Path, lines: Lines, separator: str) -> Records:
    reader = csv.reader((line + "\n" for line in lines), delimiter=separator, strict=True)
    while True:
        place = f"line {reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(f"{path}, {place}: {error} (is a quotation mark missing, or not doubled?)") from error
        if cells:
            yield place, cells


def _json(path: Path, lines: Lines, whole: bool) -> OpenedTable:
    """Read an object per line, or an array of objects; the keys of the first 1,000 objects are the columns."""

    def objects() -> Iterator[tuple[str, Any]]:
        if whole:
            with reraise_as(f"{path}: not JSON"):
                yield from ((f"object {i}", value) for i, value in enumerate(json.loads("\n".join(lines)), 1))
            return
        for place, line in _numbered(lines):
            try:
                yield place, json.loads(line)
            except (ValueError, RecursionError):
                yield place, None

    records = objects()
    head = list(itertools.islice(records, _INSPECTED))
    keys = list(dict.fromkeys(key for _, values in head if isinstance(values, dict) for key in values))

    def cells(values: Any) -> list[Any] | str:
        if not isinstance(values, dict):
            return "not a JSON object"
        return [values.get(key) for key in keys] + [value for key, value in values.items() if key not in keys]

    rows: Records = ((place, cells(values)) for place, values in itertools.chain(head, records))
    return OpenedTable(str(path), rows, len(keys), keys, f"JSON objects with the keys {', '.join(keys)}")


def _parquet(path: Path) -> OpenedTable:
    check_is_file(path)
    damaged = f"{path} cannot be read"
    with reraise_as(damaged):
        file = pyarrow.parquet.ParquetFile(path)

    def rows() -> Iterator[Sequence[Any]]:
        with reraise_as(damaged):
            for batch in file.iter_batches():
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    names = list(file.schema_arrow.names)
    records: Records = ((f"row {i}", row) for i, row in enumerate(rows(), 1))
    return OpenedTable(str(path), records, len(names), names, f"parquet with the columns {', '.join(names)}")
