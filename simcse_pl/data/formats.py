"""File formats: find out how a file is written, and read its rows, each with its location in the file.

Text, csv, tsv, jsonl, parquet and arrow files. Error messages have the line of an invalid row, and
`on_invalid_row=drop` skips it. pandas and `datasets` give neither for all of these formats.
"""

import itertools
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import STANDARD, check_is_file, read_lines

Format = Literal["text", "table", "json", "parquet"]
# A location such as `line 7`, and the cells of the row there, or why it cannot be read.
Records = Iterator[tuple[str, Sequence[Any] | str]]

FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".csv": "table",
    ".tsv": "table",
    ".jsonl": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "parquet",
}
TEXT = "a sentence per line"
_INSPECTED = 1000  # lines, to find out how a file is written
_LONGEST = 2**20  # characters of a sentence; tokenizing one takes 150 times as many bytes

_COLUMN_EACH = "; give each sentence its own column, or in training set data.negatives=1, which reads lists"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON allows it; UTF-8 and tokenizers do not
_IN_TEXT = ("\t", "||", "|||")  # what separates cells in files that end in .txt; sentences have commas and semicolons


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the rows of a file are written. What is None follows from the file's name and its first lines.

    Args:
        format: `text`, one sentence per line; `table`, cells between separators; `json`, an object or an array per
            line, or an array of these; or `parquet`, also for .arrow.
        separator: what separates the cells of a table, such as `;` or `||`.
        header: whether the first row of a table has the columns' names.
        encoding: how the characters are written, such as `gb18030`; None for UTF-8.
    """

    format: Format | None = None
    separator: str | None = None
    header: bool | None = None
    encoding: str | None = None


DETECTED = Layout()


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

    def text(self, column: int, cell: Any, may_be_empty: bool = False) -> str:
        """Return the text of a cell in NFC, without white space around it; raise ValueError if it is invalid."""
        problem = text_problem(cell)
        text = "" if problem else unicodedata.normalize("NFC", cell.strip())
        if problem or not (text or may_be_empty):
            raise ValueError(f"column {self.name(column)} {problem or 'is empty'}")
        return text


def open_table(path: Path, layout: Layout = DETECTED) -> OpenedTable:
    """Open a file.

    Args:
        path: ends in .txt, .csv, .tsv, .jsonl or .json, or in one of these and .gz, or in .parquet or .arrow; or `-`,
            standard input as text.
        layout: how the file is written. What it leaves open follows from the name and the first 1,000 lines.
    """
    ending = file_ending(path)
    if str(path) != STANDARD:
        check_is_file(path)
    if ending not in FORMATS and not layout.format:
        ends = f"its name should end in {', '.join(FORMATS)} (or one of these and .gz)"
        raise UserError(f"{path}: {ends}; data.format or --format names another's format")
    if "parquet" in (layout.format, FORMATS.get(ending)):
        from simcse_pl.data.records import rows_of_parquet

        return OpenedTable(str(path), *rows_of_parquet(path))
    lines = read_lines(path, layout.encoding)
    head = list(itertools.islice(lines, 0 if str(path) == STANDARD else _INSPECTED))
    lines = itertools.chain(head, lines)
    kind = layout.format or format_of(ending, head)
    if kind == "json":
        from simcse_pl.data.records import rows_of_json

        first, *more = [*filter(None, map(str.strip, head)), ""]
        whole = first.startswith("[") and not (any(more) and first.endswith("]"))  # or an array per line
        return OpenedTable(str(path), *rows_of_json(path, lines, whole, layout.header))
    if kind == "text":
        records: Records = ((f"line {number}", [line]) for number, line in enumerate(lines, 1) if line.strip())
        return OpenedTable(str(path), records, 1, layout=TEXT)
    from simcse_pl.data.records import rows_of_table

    return OpenedTable(str(path), *rows_of_table(path, ending, head, lines, layout.separator, layout.header))


def file_ending(path: Path) -> str:
    """Return the ending of a file's name without .gz; that of standard input is .txt."""
    return ".txt" if str(path) == STANDARD else Path(path.name.lower().removesuffix(".gz")).suffix


def text_problem(cell: Any) -> str | None:
    """Return why a cell is not text that a tokenizer can read, or None."""
    if not isinstance(cell, str):
        return f"is not text: {str(cell)[:40]}" + _COLUMN_EACH * isinstance(cell, list | dict)
    if len(cell) > _LONGEST:
        return f"has {len(cell)} characters, which is no sentence"
    if not cell.isascii() and _LONE_SURROGATE.search(cell):  # isascii() is fast
        return "has a lone surrogate, half of a character"
    return None


def format_of(ending: str, lines: Sequence[str]) -> Format:
    """Return the format of a file from the end of its name and its first lines."""
    first = next(filter(None, map(str.strip, lines)), "")
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(first), dict):
            return "json"
    if ending == ".txt" and any(separator in line for line in lines for separator in _IN_TEXT):
        from simcse_pl.data.records import separator_of

        if separator_of(ending, lines, _IN_TEXT):
            return "table"
    return FORMATS[ending]
