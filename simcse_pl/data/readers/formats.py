"""File formats: read the rows of text, csv, tsv, jsonl and parquet files, each with its place in the file.

Error messages have the line of an invalid row, and `on_invalid_row=drop` skips it. pandas and `datasets` give neither
for all of these formats.
"""

import csv
import itertools
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet

from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import STANDARD_INPUT, check_is_file, read_lines

Records = Iterator[tuple[str, Sequence[Any]]]  # a place such as `line 7`, and the cells of the row there

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON allows it; UTF-8 and tokenizers do not
_MAX_WORDS_OF_A_NAME = 3
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
    match file_format(path):
        case ".txt":
            return OpenedTable(((place, [line]) for place, line in _lines(path)), width=1)
        case ".csv":
            return _delimited(path, _csv_records(path), header)
        case ".tsv":  # no quoting: sentences have stray quotation marks
            return _delimited(path, ((place, line.split("\t")) for place, line in _lines(path)), header)
        case ".jsonl":
            return _jsonl(path)
        case ".parquet":
            return _parquet(path)
    raise UserError(f"{path}: its name should end in .txt, .csv, .tsv, .jsonl (or one of these and .gz) or .parquet")


def file_format(path: Path) -> str:
    """Return the ending of a file's name without .gz; that of standard input is .txt."""
    return ".txt" if str(path) == STANDARD_INPUT else Path(path.name.lower().removesuffix(".gz")).suffix


def text_problem(cell: Any) -> str | None:
    """Return why a cell is not text that a tokenizer can read, or None."""
    if not isinstance(cell, str):
        return f"is not text: {str(cell)[:40]}"
    if not cell.isascii() and _LONE_SURROGATE.search(cell):  # isascii() is fast
        return "has a lone surrogate, half of a character"
    return None


def is_number(cell: str) -> bool:
    """Return whether a cell is a number, with a point or a comma for the decimals."""
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def looks_like_a_name(cell: str) -> bool:
    """Return whether a cell is short, and neither a sentence nor a number."""
    sentence = cell.rstrip(" \"'”’)").endswith(_SENTENCE_ENDS) or len(cell.split()) > _MAX_WORDS_OF_A_NAME
    return not sentence and not is_number(cell)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each line that is not blank."""
    return ((f"line {number}", line) for number, line in enumerate(read_lines(path), 1) if line.strip())


def _delimited(path: Path, records: Records, header: bool | None) -> OpenedTable:
    place, first = next(records, ("", []))
    if header is False:
        return OpenedTable(itertools.chain([(place, first)] if place else [], records), len(first))
    names = [name.strip() for name in first]
    for name in names if header is None else ():
        if not looks_like_a_name(name):
            advice = "set header=false if the file has no header, header=true if this is the header"
            raise UserError(f"{path}, {place}: {name[:40]!r} does not look like a column name; {advice}")
    return OpenedTable(records, len(names), names)


def _csv_records(path: Path) -> Records:
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    while True:
        place = f"line {reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(f"{path}, {place}: {error} (is a quotation mark missing?)") from error
        if cells:
            yield place, cells


def _jsonl(path: Path) -> OpenedTable:
    """The keys of the first object are the columns."""

    def objects() -> Iterator[tuple[str, dict[str, Any]]]:
        for place, line in _lines(path):
            with reraise_as(f"{path}, {place}: not a JSON object"):
                yield place, dict(json.loads(line).items())

    records = objects()
    first = list(itertools.islice(records, 1))
    keys = [key for _, values in first for key in values]
    rows = ((place, [values.get(key) for key in keys]) for place, values in itertools.chain(first, records))
    return OpenedTable(rows, len(keys), keys)


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
    return OpenedTable(((f"row {i}", row) for i, row in enumerate(rows(), 1)), len(names), names)
