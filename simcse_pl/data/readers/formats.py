"""File formats: the cells of a text, csv, tsv, jsonl or parquet file with the place each row stands at."""

import csv
import gzip
import io
import itertools
import json
import re
import reprlib
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.text_files import STANDARD_INPUT, Unreadable, check_is_file, read_lines
from simcse_pl.utils.validation import LONE_SURROGATE

_NUMBER = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?")
_WORDS_OF_A_NAME = 3  # at most
_ENDS_OF_A_SENTENCE = (".", "!", "?", "。", "！", "？")
_MOST_TIMES_UNPACKED = 100  # the size of a parquet file that is packed: it is packed in itself


Cells = Sequence[Any] | Unreadable
Records = Iterator[tuple[str, Cells]]  # the place (`line 7`) and what stands there


@dataclass(frozen=True)
class OpenedTable:
    """A file's column names, None where it has none, and its rows, read as they are asked for.

    A format that keeps documents apart has them as `documents` too: a sentence and the name of its document a row.
    """

    header: list[str] | None
    records: Records
    documents: Records | None = None


def open_table(path: Path, header: bool | None = True) -> OpenedTable:
    """Open a file in the format that its name ends in, gzipped or not.

    Args:
        path: ends in .txt, .csv, .tsv, .jsonl or .parquet, and perhaps .gz after that; or `-`, standard input as text.
        header: whether csv and tsv begin with a row of names; where None they do, and the row is checked.

    Raises:
        UserError: no such file, an unknown format, a file that cannot be read (when its rows are read, too), or a
            checked first row with a cell that does not look like a name.
    """
    if str(path) == STANDARD_INPUT:
        return OpenedTable(None, _txt(path, packed=False))
    check_is_file(path)
    packed = path.suffix.lower() == ".gz"
    suffix = (path.with_suffix("") if packed else path).suffix.lower()
    match suffix:
        case ".txt":
            return OpenedTable(None, _txt(path, packed), _documents(path, packed))
        case ".csv":
            return _delimited(path, _csv_records(read_lines(path, packed)), header)
        case ".tsv":
            return _delimited(path, _tsv_records(read_lines(path, packed)), header)
        case ".jsonl":
            return _jsonl(path, packed)
        case ".parquet":
            return _parquet(path, packed)
    raise UserError(f"{path}: its name should end in .txt, .csv, .tsv, .jsonl or .parquet (or that and .gz)")


def text_problem(cell: Any) -> str | None:
    """What a cell holds in place of text, in a few words however much it is; None where it holds text."""
    if not isinstance(cell, str):
        return f"holds no text but {reprlib.repr(cell)}"
    if not cell.isascii() and LONE_SURROGATE.search(cell):  # the first is known without looking
        return f"holds half a character ({cell[:20]!a})"
    return None


def is_number(cell: str) -> bool:
    """Return whether a cell is a number in decimal digits."""
    return bool(_NUMBER.fullmatch(cell.strip()))


def _txt(path: Path, packed: bool) -> Records:
    """One sentence a line; blank lines are none."""
    for place, cells in _documents(path, packed):
        yield place, cells if isinstance(cells, Unreadable) else cells[:1]


def _documents(path: Path, packed: bool) -> Records:
    """A sentence a line, and its document's name: the number of the blank line before it."""
    document = "0"
    for number, line in enumerate(read_lines(path, packed), 1):
        if isinstance(line, Unreadable):
            yield f"line {number}", line
        elif line.strip():
            yield f"line {number}", [line, document]
        else:
            document = str(number)


def _delimited(path: Path, records: Records, header: bool | None) -> OpenedTable:
    if header is False:
        return OpenedTable(None, records)
    place, names = next(records, ("", []))
    if isinstance(names, Unreadable):
        raise UserError(f"{path}, {place}: {names.problem}")
    for name in names if header is None else ():
        if not _looks_like_a_name(name):
            advice = "set data.header=false if the file has no header, data.header=true if this is the header"
            raise UserError(f"{path}, {place}: {reprlib.repr(name)} does not look like a column name; {advice}")
    return OpenedTable([name.strip() for name in names], records)


def _looks_like_a_name(cell: str) -> bool:
    """Return whether a cell may name a column: neither a number nor a sentence."""
    sentence = cell.rstrip().rstrip("\"'”’)").endswith(_ENDS_OF_A_SENTENCE) or len(cell.split()) > _WORDS_OF_A_NAME
    return not sentence and not is_number(cell)


def _tsv_records(lines: Iterator[str | Unreadable]) -> Records:
    """Cells as they stand: sentences hold stray quotation marks, and tsv files quote nothing."""
    for number, line in enumerate(lines, 1):
        if line:
            yield f"line {number}", line if isinstance(line, Unreadable) else line.split("\t")


def _csv_records(lines: Iterator[str | Unreadable]) -> Records:
    bad: list[Unreadable] = []

    def text() -> Iterator[str]:
        for line in lines:
            if isinstance(line, Unreadable):
                bad.append(line)
            yield "?\n" if isinstance(line, Unreadable) else line + "\n"

    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(text(), strict=True)
    while True:
        place = f"line {reader.line_num + 1}"
        try:
            cells: Cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            why = "a carriage return outside quotation marks" if "new-line" in str(error) else str(error)
            cells = Unreadable(f"{why} (is a quotation mark missing?)")
        if bad:
            cells = bad[0]
            bad.clear()
        if cells:
            yield place, cells


def _jsonl(path: Path, packed: bool) -> OpenedTable:
    """Objects, one a line; the keys of the first are the columns."""

    def objects() -> Iterator[tuple[str, dict[str, Any] | Unreadable]]:
        for number, line in enumerate(read_lines(path, packed), 1):
            if isinstance(line, Unreadable):
                yield f"line {number}", line
            elif line.strip():
                yield f"line {number}", _json_object(line)

    stream = objects()
    unreadable: list[tuple[str, Cells]] = []
    for first in stream:
        if isinstance(first[1], dict):
            keys = list(first[1])
            rest: Records = (
                (place, record if isinstance(record, Unreadable) else [record.get(key) for key in keys])
                for place, record in itertools.chain([first], stream)
            )
            return OpenedTable(keys, itertools.chain(unreadable, rest))
        unreadable.append((first[0], first[1]))
    return OpenedTable([], iter(unreadable))


def _json_object(line: str) -> dict[str, Any] | Unreadable:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Unreadable(f"not JSON: {first_line(error)}")
    return value if isinstance(value, dict) else Unreadable("not a JSON object")


def _parquet(path: Path, packed: bool) -> OpenedTable:
    try:
        whole = _unpacked(path) if packed else path
        texts = [field.name for field in pyarrow.parquet.read_schema(whole) if _is_text(field.type)]
        file = pyarrow.parquet.ParquetFile(whole, read_dictionary=texts)
    except (OSError, EOFError, ValueError, zlib.error, pyarrow.ArrowException) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error

    def rows() -> Iterator[Sequence[Any]]:
        try:
            for batch in file.iter_batches():
                yield from zip(*map(_cells, batch.columns), strict=True)
        except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:  # text or dates that are none
            raise UserError(f"{path} cannot be read: {first_line(error)}") from error

    return OpenedTable(list(file.schema_arrow.names), ((f"row {i}", row) for i, row in enumerate(rows(), 1)))


def _unpacked(path: Path) -> io.BytesIO:
    with gzip.GzipFile(path) as file:
        content = file.read(_MOST_TIMES_UNPACKED * path.stat().st_size)
        if file.read(1):
            raise ValueError(f"it unpacks to more than {_MOST_TIMES_UNPACKED} times its size; give it unpacked")
    return io.BytesIO(content)


def _is_text(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def _cells(column: pyarrow.Array) -> list[Any]:
    """What stands in a column; a text that stands in many rows, of which the file may hold one, is one in memory."""
    if not isinstance(column, pyarrow.DictionaryArray):
        return list(column.to_pylist())
    texts = column.dictionary.to_pylist()
    return [None if place is None else texts[place] for place in column.indices.to_pylist()]
