"""Row readers: rows of sentences from a local file or from the Hugging Face Hub, each row checked."""

import itertools
import logging
import reprlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_pl.data.readers.formats import (
    Cells,
    OpenedTable,
    file_format,
    is_finite_float32,
    is_number,
    open_table,
    read_documents,
    text_problem,
)
from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import Unreadable, check_is_file, sha256_of

if TYPE_CHECKING:
    import datasets

log = logging.getLogger(__name__)

Row = tuple[str, ...]
NamedRows = Iterator[tuple[Row, str | None]]  # each row with its label, score or the name of its document, if any
Warn = Callable[[str], None]
HUB = "hf://datasets/"
ON_INVALID_ROW = ("error", "drop", "blank")
_ROWS_CHECKED_FOR_NUMBERS = 100


def read_rows(source: str | Path, columns: Sequence[int | str] | None = None, **options: Any) -> list[Row]:
    """Read all rows of a source; the arguments and errors are those of `iterate_rows`."""
    return [row for row, _ in iterate_rows(source, columns, **options)]


def read_sentences(source: str | Path, column: int | str | None = None, on_invalid_row: str = "error") -> list[str]:
    """Read all sentences of a file; the arguments and errors are those of `iterate_sentences`."""
    return list(iterate_sentences(source, column, on_invalid_row))


def iterate_sentences(
    source: str | Path, column: int | str | None = None, on_invalid_row: str = "error"
) -> Iterator[str]:
    """Open a file and return an iterator over its sentences: its lines, or one column of a table.

    Args:
        source: see `iterate_rows`; or `-`, standard input, one sentence per line.
        column: the column's name, or its position from 0; required if there are several columns.
        on_invalid_row: see `iterate_rows`.

    Raises:
        UserError: the file or the column does not exist, or no column is chosen of several; from the iterator, an
            invalid row.
    """
    table = open_source(str(source), True, "train")
    if column is None and table.width > 1:
        raise UserError(f"{source} has {table.width} columns: choose the one with the sentences")
    positions = [0] if column is None else [position_of(source, table, column)]
    rows = _valid_rows(source, table, positions, None, on_invalid_row, log.warning)
    return (row[0] for row, _ in _check_no_numbers(source, table, positions, rows))


def iterate_rows(
    source: str | Path,
    columns: Sequence[int | str] | None = None,
    on_invalid_row: str = "error",
    header: bool | None = True,
    split: str = "train",
    label_column: int | str | None = None,
    score_column: int | str | None = None,
    warn: Warn = log.warning,
) -> NamedRows:
    """Open a source and return an iterator over its rows of sentences, each with its label or score.

    A row is a sentence, or an anchor, its positive and any hard negatives.

    Args:
        source: a file (see `formats.open_table`), `hf://datasets/OWNER/NAME/FILE` for a file of a dataset on the
            Hugging Face Hub, or `hf://datasets/OWNER/NAME` for the dataset itself.
        columns: the columns of sentences, by name or by position from 0; None for all but the labels'.
        on_invalid_row: `error` raises an error. `drop` skips rows with empty cells, a wrong number of columns or
            text that is not UTF-8, and counts them in one warning. `blank` keeps an empty cell as an empty sentence
            if another cell of its row has text, as the paper's code does, and raises an error for other invalid rows.
        header: see `formats.open_table`.
        split: the split of a dataset on the Hub.
        label_column: the column of the labels, text or integers, by name or by position from 0; if None, labels are
            None.
        score_column: in place of `label_column`, the column of the scores, finite numbers.
        warn: called with a warning after the last row.

    Raises:
        UserError: the source or a column does not exist, the label column is one of `columns`, or the header does
            not look like one; from the iterator, an invalid row (the message has the file and the line), no rows, or
            a column of numbers where there are several.
    """
    table = open_source(str(source), header, split)
    given, option = (label_column, "label_column") if score_column is None else (score_column, "score_column")
    label = None if given is None else position_of(source, table, given)
    if columns is None:
        positions = [i for i in range(table.width) if i != label]
    else:
        positions = [position_of(source, table, column) for column in columns]
    if label in positions:
        raise UserError(f"data.{option}={given} is also in data.columns: remove it from one of them")
    if table.width == 1 and not positions:
        raise UserError(f"{source} has no column of sentences besides data.{option}={given}")
    rows = _valid_rows(source, table, positions, label, on_invalid_row, warn, score_column is not None)
    return _check_no_numbers(source, table, positions, rows)


def iterate_documents(source: str | Path, on_invalid_row: str = "error", warn: Warn = log.warning) -> NamedRows:
    """Return an iterator over the sentences of a text file in order, rows of one, each with its document's name.

    Args:
        source: a .txt file, local or on the Hub: one sentence per line, a blank line between documents.
        on_invalid_row, warn: see `iterate_rows`.

    Raises:
        UserError: another kind of source, or as from `iterate_rows`.
    """
    path = _locate(str(source))
    if not isinstance(path, Path) or file_format(path) != ".txt":
        needed = "a .txt file with one sentence per line and a blank line between documents"
        raise UserError(f"{source} does not show which sentences follow each other in a document: give {needed}")
    check_is_file(path)
    table = OpenedTable(read_documents(path), 2, ["sentence", "document"])
    return _valid_rows(source, table, [0], 1, on_invalid_row, warn)


def _valid_rows(
    source: str | Path,
    table: OpenedTable,
    positions: list[int],
    label: int | None,
    on_invalid_row: str,
    warn: Warn,
    scores: bool = False,
) -> NamedRows:
    if on_invalid_row not in ON_INVALID_ROW:
        raise UserError(f"data.on_invalid_row={on_invalid_row}: choose one of {', '.join(ON_INVALID_ROW)}")
    rows = dropped = blank = 0
    first_dropped = ""
    for place, cells in table.records:
        row = _row(table, cells, positions, label, on_invalid_row == "blank", scores)
        if not isinstance(row, Unreadable):
            rows += 1
            blank += row[0].count("")
            yield row
        elif on_invalid_row == "drop":
            first_dropped = first_dropped or f"{place}: {row.problem}"
            dropped += 1
        else:
            advice = "data.on_invalid_row=drop skips such rows in training, and --on-invalid-row drop in simcse mine"
            raise UserError(f"{source}, {place}: {row.problem} ({advice})")
    if not rows:
        raise UserError(f"{source} has no {'valid ' if dropped else ''}rows")
    if blank:
        warn(f"{source}: {blank} empty cells are read as empty sentences")
    if dropped:
        warn(f"{source}: {dropped} invalid rows dropped, the first at {first_dropped}")


def _row(
    table: OpenedTable, cells: Cells, positions: list[int], label: int | None, blank: bool, scores: bool
) -> tuple[Row, str | None] | Unreadable:
    """Return the sentences and the label or score of a row; with `blank`, some but not all sentences may be empty."""
    if isinstance(cells, Unreadable):
        return cells
    if len(cells) != table.width:
        return Unreadable(f"{len(cells)} columns where there should be {table.width}")
    texts = {}
    for i in [*positions, *([] if label is None else [label])]:
        cell = "" if cells[i] is None else cells[i]
        if i == label and isinstance(cell, int | float if scores else int):  # jsonl has numbers
            cell = str(cell)
        if problem := text_problem(cell):
            return Unreadable(f"column {table.name(i)} {problem}")
        texts[i] = cell.strip()
    row = tuple(texts[i] for i in positions)
    for i, text in texts.items():
        if not text and not (blank and any(row) and i != label):
            return Unreadable(f"column {table.name(i)} is empty")
    if label is not None and scores and not is_finite_float32(texts[label]):
        return Unreadable(f"column {table.name(label)} holds {reprlib.repr(texts[label])}, not a finite number")
    return row, None if label is None else texts[label]


def _check_no_numbers(source: str | Path, table: OpenedTable, positions: list[int], rows: NamedRows) -> NamedRows:
    """Yield the rows; raise an error if one of several columns has only numbers: scores, classes or ids."""
    head = list(itertools.islice(rows, _ROWS_CHECKED_FOR_NUMBERS if table.width > 1 else 0))
    for i, sentences in zip(positions, zip(*(row for row, _ in head), strict=True), strict=False):
        if all(map(is_number, sentences)):
            advice = "data.columns=[...] chooses the columns of sentences, data.label_column a column of classes"
            advice += ", data.score_column one of scores"
            raise UserError(f"{source}: column {table.name(i)} has numbers, not sentences (in training, {advice})")
    yield from itertools.chain(head, rows)


def position_of(source: str | Path, table: OpenedTable, column: int | str) -> int:
    """Return the position of a column, given by name or by position; raise UserError if it does not exist."""
    if isinstance(column, int) and 0 <= column < table.width:
        return column
    if table.header is not None and column in table.header:
        return table.header.index(str(column))
    unnamed = f"no column names: give a position from 0 to {table.width - 1}"
    has = unnamed if table.header is None else f"the columns {', '.join(table.header)}"
    raise UserError(f"no column {column} in {source}, which has {has}")


def fingerprint(source: str | Path, split: str = "train") -> str:
    """Return a string that changes with the content: a file's SHA-256, or the fingerprint of a dataset on the Hub.

    Raises:
        UserError: the source does not exist.
    """
    found = _locate(str(source))
    if not isinstance(found, Path):
        return str(load_hub_dataset(found, split)._fingerprint)
    check_is_file(found)
    return sha256_of(found)


def open_source(name: str, header: bool | None, split: str) -> OpenedTable:
    """Open a file, or a split of a dataset on the Hugging Face Hub (see formats.open_table)."""
    found = _locate(name)
    if isinstance(found, Path):
        return open_table(found, header)
    dataset = load_hub_dataset(found, split)
    names = list(dataset.column_names)
    return OpenedTable(((f"row {i}", [*row.values()]) for i, row in enumerate(dataset, 1)), len(names), names)


def _locate(name: str) -> Path | str:
    """Return the path of a file, or the repository of a dataset on the Hub."""
    if not name.startswith(HUB):
        return Path(name)
    owner, repository, file = [*name.removeprefix(HUB).split("/", 2), "", ""][:3]
    if not owner or not repository:
        raise UserError(f"{name}: write {HUB}OWNER/NAME or {HUB}OWNER/NAME/FILE")
    if file:
        return hub.download(f"{owner}/{repository}", file, repo_type="dataset")
    return f"{owner}/{repository}"


def load_hub_dataset(repository: str, split: str) -> "datasets.Dataset":
    """Load a split of a dataset on the Hugging Face Hub, downloaded or from the cache.

    Raises:
        UserError: it does not exist, or the Hub cannot be reached and the cache has no copy.
    """
    import datasets  # slow to import

    unavailable = hub.unavailable(repository, "dataset")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    offline = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = offline or unavailable is not None  # the cache still loads, without waiting
    try:
        with hub.quiet("huggingface_hub", "datasets"):
            return datasets.load_dataset(repository, split=split)
    except Exception as error:  # the library has dozens of kinds
        why = f"it is not in the local cache, and the Hub returned: {unavailable}" if unavailable else hub.reason(error)
        raise UserError(f"dataset {repository}, split {split}, cannot be loaded: {why}") from error
    finally:
        datasets.config.HF_HUB_OFFLINE = offline
