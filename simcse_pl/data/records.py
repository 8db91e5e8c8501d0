"""Rows of tables, how they are separated and named, and rows of JSON, parquet and arrow files."""

import csv
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.text import as_number

log = logging.getLogger(__name__)
# What an OpenedTable has beside its source: records, width, header and layout.
Opened = tuple[Iterator[tuple[str, Sequence[Any] | str]], int, list[str] | None, str]

NO_LABEL = "-"  # where annotators disagree, in SNLI and OCNLI
_INSPECTED = 1000  # rows, to find the columns' names; lines, to find out whether cells are quoted
_LARGEST_CELL = 2**28  # characters; a quotation mark that is not closed would fill the memory
_SEPARATOR_LINE = re.compile("sep=(.)", re.IGNORECASE)  # Excel's
_SEPARATORS = (",", ";", "\t", "|", "||", "|||")
_USUAL = {".csv": ",", ".tsv": "\t"}
_SHARE_OF_ROWS = 0.8  # that need equal width for another separator than the usual one
_IN_WORDS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_MAX_WORDS_OF_A_NAME = 3
_SENTENCE_ENDS = (".", "!", "?", "。", "！", "？")
_NAMES = (
    *("anchor", "answer", "caption", "category", "context", "document", "gold", "hard", "headline", "hypothesis", "id"),
    *("idx", "index", "label", "neg", "negative", "neutral", "number", "passage", "phrase", "pos", "positive"),
    *("premise", "queries", "query", "question", "response", "score", "sent", "sentence", "similarity", "source"),
    *("string", "summary", "target", "text", "title", "translation"),
)
_CJK_NAME = re.compile(
    "(句子?|文本|原文|标[签題题]|標[籤題]|相似度?|问题|問題|答案|标准问|相似问|类别|编号|分数|得分|문장|라벨|질문|점수|文|ラベル|スコア)"
    "[0-9A-Za-z一二三]?"
)


def rows_of_table(
    path: Path, ending: str, start: list[str], lines: Iterator[str], separator: str | None, header: bool | None
) -> Opened:
    """Return the rows of a table, whose first lines, `start`, are also in `lines`."""
    csv.field_size_limit(_LARGEST_CELL)
    separator = (separator or "").replace("\\t", "\t")
    if start and (line := _SEPARATOR_LINE.fullmatch(start[0].strip())):
        separator = separator or line[1]
        start, lines = start[1:], itertools.chain([""], itertools.islice(lines, 1, None))  # keeps the numbers of lines
    separator = separator or separator_of(ending, start) or ","
    if quoted := is_quoted(start, separator):
        records = _csv_records(path, lines, separator)
    else:
        records = _split_records(path, lines, separator, may_be_quoted=separator == "\t")
    head = list(itertools.islice(records, _INSPECTED))
    names, with_names = _header(head, header)
    width = len(names or (head[0][1] if head else ()))
    quotes = " and quoted" if quoted and separator == "\t" else ""
    separated = f" separated by {_IN_WORDS.get(separator, separator)}{quotes}"
    shape = f"{width} columns{separated}" if width > 1 else "1 column"
    return itertools.chain(head, records), width, names, f"{shape}, {with_names}"


def _header(head: list[tuple[str, Any]], given: bool | None) -> tuple[list[str] | None, str]:
    """Remove the header, if there is one, from the first rows; return the columns' names, also in words."""
    rows = [["" if cell is None else str(cell).strip() for cell in cells] for _, cells in head]
    if rows and (is_header(rows[0], rows[1:]) if given is None else given):
        del head[0]
        return rows[0], f"with the column names {', '.join(rows[0])}"
    return None, "without column names"


def separator_of(ending: str, lines: Sequence[str], candidates: Collection[str] = _SEPARATORS) -> str | None:
    """Return the separator that gives most lines the same number of cells, two or more; None if none does.

    If several do so equally, the later of `candidates` does: `a;0,5` has a semicolon and a decimal comma.
    """
    usual = _USUAL.get(ending)
    best, best_share = usual, 0.0
    for separator in candidates:
        widths = Counter(map(len, split(lines, separator)))
        (width, count) = widths.most_common(1)[0] if widths else (1, 0)
        share = count / widths.total() if width > 1 else 0.0
        if share >= max(best_share, 0.0 if separator == usual else _SHARE_OF_ROWS) and share:
            best, best_share = separator, share
    return best


def split(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Return the cells of the rows in these lines; none if they cannot be read."""
    if not is_quoted(lines, separator):
        return [line.split(separator) for line in lines if line.strip()]
    with suppress(csv.Error):
        rows = csv.reader((line + "\n" for line in lines), delimiter=separator, skipinitialspace=separator != "\t")
        return [cells for cells in rows if cells]
    return []


def is_quoted(lines: Sequence[str], separator: str) -> bool:
    """Return whether quotation marks around the cells of a table are not part of the text.

    They are not in files with commas or semicolons. In files with tabs, they are not if pandas or a spreadsheet wrote
    the file: these double the marks within a cell, and put marks around cells with tabs or line breaks, or around all
    cells.
    """
    if separator != "\t":
        return len(separator) == 1
    plain = [line.split(separator) for line in lines if line.strip()]
    marked = [cell for cells in plain for cell in cells if cell.startswith('"')]
    if not marked:
        return False
    widths = set()
    try:
        for row in csv.reader((line + "\n" for line in lines), delimiter=separator, strict=True):
            widths.add(len(row))
    except csv.Error as error:
        if len(lines) < _INSPECTED or str(error) != "unexpected end of data":  # the lines may end within a cell
            return False
    if len(set(map(len, plain))) > 1:
        return len(widths - {0}) == 1
    return any('""' in cell[1:-1] for cell in marked) or all(
        cell.startswith('"') or as_number(cell) is not None for cells in plain for cell in cells
    )


def _split_records(
    path: Path, lines: Iterator[str], separator: str, first: int = 1, may_be_quoted: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of lines, the `first` of a file and those that follow it.

    If they may be quoted, the first cell that begins with a quotation mark shows it, wherever it is in the file.
    """
    before = ""
    for number, line in enumerate(lines, first):
        if may_be_quoted and separator + '"' in separator + line:
            near = [line, *itertools.islice(lines, _INSPECTED)]
            records = _csv_records if is_quoted([before, *near], separator) else _split_records
            yield from records(path, itertools.chain(near, lines), separator, number)
            return
        if line.strip():
            before = line
            yield f"line {number}", line.split(separator)


def _csv_records(path: Path, lines: Iterator[str], separator: str, first: int = 1) -> Iterator[tuple[str, list[str]]]:
    reader = csv.reader(
        (line + "\n" for line in lines), delimiter=separator, strict=True, skipinitialspace=separator != "\t"
    )
    warned = False
    while True:
        location = f"line {reader.line_num + first}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(f"{path}, {location}: {error} (is a quotation mark missing, or not doubled?)") from error
        if not warned and any(r"\"" in cell for cell in cells):
            log.warning(r'%s: backslashes before quotation marks stay in the text: write "" in place of \"', path)
            warned = True
        if cells:
            yield location, cells


def is_header(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row of a table has the columns' names.

    Each cell must be short, and neither a number nor a sentence. Besides, the usual words for columns make up half of
    the cells; or a column has numbers below; or all cells are single words, and most cells of a column are not. Pandas
    numbers columns without names from 0.
    """
    cells = [cell.strip() for cell in first]
    named = cells[cells[:1] == [""] :]  # without pandas' index
    if named and named == [*map(str, range(len(named)))]:
        return any(as_number(cell) is None for row in others for cell in row[-len(named) :][:1])
    if not any(cells) or any(_is_sentence(cell) or as_number(cell) is not None for cell in cells):
        return False
    if 2 * sum(map(_is_usual_name, cells)) >= len(cells):
        return True
    columns = list(zip(*(row for row in others if len(row) == len(cells)), strict=True))
    if any(name and None not in map(as_number, column) for name, column in zip(cells, columns, strict=False)):
        return True
    longer = (2 * sum(len(cell.split()) > 1 for cell in column) > len(column) for column in columns)
    return any(longer) and all(len(cell.split()) == 1 for cell in cells)


def _is_sentence(cell: str) -> bool:
    return cell.rstrip(" \"'”’)").endswith(_SENTENCE_ENDS) or len(cell.split()) > _MAX_WORDS_OF_A_NAME


def _is_usual_name(cell: str) -> bool:
    words = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cell).lower())
    known = [word in _NAMES or word.removesuffix("s") in _NAMES for word in words]
    usual = any(known) and all(ok or len(word) == 1 for ok, word in zip(known, words, strict=True))
    return usual or _CJK_NAME.fullmatch(cell) is not None


def rows_of_json(path: Path, lines: Iterator[str], whole: bool, header: bool | None) -> Opened:
    """Return the rows of an array, or one per line: arrays, or objects, whose first 1,000 have the columns' names."""
    objects = _values(path, lines, whole)
    head = list(itertools.islice(objects, _INSPECTED))
    keys = list(dict.fromkeys(key for _, values in head if isinstance(values, dict) for key in values))
    width = len(keys or next((values for _, values in head if isinstance(values, list)), []))
    if head and not any(isinstance(values, dict | list) for _, values in head):
        raise UserError(f"{path}, {head[0][0]}: each {'item' if whole else 'line'} needs to be one JSON object")
    names, about = keys or None, f"JSON objects with the keys {', '.join(keys)}"
    are_arrays = all(isinstance(values, list) for _, values in head)
    if are_arrays:
        names, with_names = _header(head, header)
        about = f"JSON arrays, {with_names}"

    def cells(values: Any) -> list[Any] | str:
        if are_arrays:
            return values if isinstance(values, list) else "not a JSON array"
        if not isinstance(values, dict):
            return "not a JSON object"
        return [values.get(key) for key in keys] + [value for key, value in values.items() if key not in keys]

    rows = ((location, cells(values)) for location, values in itertools.chain(head, objects))
    return rows, width, names, about


def _values(path: Path, lines: Iterator[str], whole: bool) -> Iterator[tuple[str, Any]]:
    if whole:  # it reads all lines
        with reraise_as(f"{path}: not JSON"):
            yield from ((f"object {i}", value) for i, value in enumerate(json.loads("\n".join(lines)), 1))
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError):
                yield f"line {number}", None


def with_words(cells: list[Any], words: Mapping[int, Sequence[str]]) -> list[Any]:
    """Return cells with the names of labels, which a data set on the Hub has as numbers; `-` for -1, no label."""
    for i, names in words.items():
        if cells[i] is not None:
            cells[i] = names[cells[i]] if cells[i] >= 0 else NO_LABEL
    return cells


def rows_of_parquet(path: Path) -> Opened:
    """Return the rows of a parquet or arrow file, with the words of labels that `datasets` has written as numbers."""
    import pyarrow.parquet

    damaged = f"{path} cannot be read"
    with reraise_as(damaged):
        with path.open("rb") as start:
            begin = start.read(6)
        if begin == b"ARROW1":
            file = pyarrow.ipc.open_file(str(path))
            schema, batches = file.schema, map(file.get_batch, range(file.num_record_batches))
        elif path.suffix.lower() == ".arrow":  # a stream, as Dataset.save_to_disk writes it
            schema, batches = (stream := pyarrow.ipc.open_stream(str(path))).schema, stream
        else:
            schema, batches = (file := pyarrow.parquet.ParquetFile(path)).schema_arrow, file.iter_batches()
        about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    names = [name for name in schema.names if not re.fullmatch(r"__index_level_\d+__", name)]  # pandas wrote no name
    kinds = [about.get(name) or {} for name in names]
    words = {i: kind["names"] for i, kind in enumerate(kinds) if kind.get("_type") == "ClassLabel"}

    def rows() -> Iterator[Sequence[Any]]:
        with reraise_as(damaged):
            for batch in batches:
                for cells in zip(*(column.to_pylist() for column in batch.select(names).columns), strict=True):
                    yield with_words([*cells], words) if words else cells

    locations = ((f"row {i}", row) for i, row in enumerate(rows(), 1))
    return locations, len(names), names, f"a table with the columns {', '.join(names)}"
