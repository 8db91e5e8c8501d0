"""How a file is written: its format, its separator, its quotation marks and its header, found from the first lines."""

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.text import as_number

Format = Literal["text", "table", "json", "parquet"]

FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".csv": "table",
    ".tsv": "table",
    ".jsonl": "json",
    ".json": "json",
    ".parquet": "parquet",
}
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "|", "||": "||"}

csv.field_size_limit(sys.maxsize)

_USUAL = {".csv": ",", ".tsv": "\t"}
_IN_TEXT = ("\t", "||")  # what separates cells in files that end in .txt; sentences have commas and semicolons
_SHARE_OF_ROWS = 0.8  # of equal width, for another separator than the usual one
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


@dataclass(frozen=True)
class Layout:
    """How the rows of a file are written. What is None follows from the file's name and its first lines.

    Args:
        format: `text`, one sentence per line; `table`, cells between separators; `json`, an object per line or an array
            of objects; or `parquet`.
        separator: what separates the cells of a table, such as `;` or `||`.
        header: whether the first row of a table has the columns' names.
        encoding: how the characters are written, such as `gb18030`; None for UTF-8.
    """

    format: Format | None = None
    separator: str | None = None
    header: bool | None = None
    encoding: str | None = None


DETECTED = Layout()


def format_of(ending: str, lines: Sequence[str]) -> Format:
    """Return the format of a file from the end of its name and its first lines.

    Raises:
        UserError: the ending is unknown.
    """
    if ending not in FORMATS:
        known = ", ".join(FORMATS)
        raise UserError(f"its name should end in {known} (or one of these and .gz); data.format names another's format")
    first = next(filter(None, map(str.strip, lines)), "")
    if FORMATS[ending] != "parquet" and first.startswith("{"):
        try:
            return "json" if isinstance(json.loads(first), dict) else FORMATS[ending]
        except ValueError:
            pass
    separated = ending == ".txt" and separator_of(ending, lines, _IN_TEXT) is not None
    return "table" if separated else FORMATS[ending]


def separator_of(ending: str, lines: Sequence[str], candidates: Collection[str] = SEPARATORS) -> str | None:
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
        return [cells for cells in csv.reader((line + "\n" for line in lines), delimiter=separator) if cells]
    return []


def is_quoted(lines: Sequence[str], separator: str) -> bool:
    """Return whether quotation marks around the cells of a table are not part of the text.

    Files separated by commas or semicolons are written so. Of those separated by tabs, some are, by pandas and by
    spreadsheets: they double the marks within a cell, and put marks around cells with tabs or line breaks, or around
    all cells.
    """
    if separator != "\t":
        return len(separator) == 1
    plain = [line.split(separator) for line in lines if line.strip()]
    marked = [cell for cells in plain for cell in cells if cell.startswith('"')]
    if not marked:
        return False
    try:
        rows = [row for row in csv.reader((line + "\n" for line in lines), delimiter=separator, strict=True) if row]
    except csv.Error:
        return False
    if len(set(map(len, plain))) > 1:
        return len(set(map(len, rows))) == 1
    return any('""' in cell[1:-1] for cell in marked) or all(
        cell.startswith('"') or as_number(cell) is not None for cells in plain for cell in cells
    )


def is_header(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row of a table has the columns' names.

    Each cell must be short, and neither a number nor a sentence. Besides, the usual words for columns make up half of
    the cells; or a column has numbers below; or all cells are single words, and most cells of a column are not.
    """
    cells = [cell.strip() for cell in first]
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
