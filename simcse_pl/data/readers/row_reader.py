"""Readers: rows of sentences from a local file or from the hub, each row checked."""

import logging
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simcse_pl.data.readers.formats import Cells, OpenedTable, is_number, open_table, text_problem
from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import sha256_of
from simcse_pl.utils.text_files import Unreadable, check_is_file

if TYPE_CHECKING:
    import datasets

log = logging.getLogger(__name__)

Row = tuple[str, ...]
ReadRows = Generator[
    tuple[Row, str | None], None, str | None
]  # rows with what stands beside; what to warn of at the end
HUB = "hf://datasets/"
ON_INVALID_ROW = ("error", "drop", "blank")
_ROWS_TO_JUDGE_BY = 100  # whether a column holds numbers


def read_rows(
    source: str | Path,
    columns: Sequence[int | str] | None = None,
    on_invalid_row: str = "error",
    header: bool | None = True,
    split: str = "train",
) -> list[Row]:
    """Rows of sentences: one column of plain sentences, or an anchor, its positive and any hard negatives.

    Args:
        source: a file (see formats.open_table), `hf://datasets/OWNER/NAME/FILE` for a file of a hub
            dataset, or `hf://datasets/OWNER/NAME` for the dataset itself.
        columns: which columns, by name or by position from 0; all of them where None.
        on_invalid_row: `error`, or `drop` to leave out rows with empty cells, a wrong number of columns or text
            that is not UTF-8, and count them in one warning. `blank` keeps an empty cell as an empty sentence where
            another cell of its row has text, and raises an error for other bad rows.
        header: whether csv and tsv begin with a row of names; where None they do, and the row is checked.
        split: which split of a hub dataset.

    Raises:
        UserError: no such file, format or column, no rows, a bad row (it names the file and the line), a column of
            numbers beside others, or a checked header that does not look like names.
    """
    return [row for row, _ in with_warning(iterate_rows(source, columns, on_invalid_row, header, split))]


def read_sentences(source: str | Path, column: int | str | None = None) -> list[str]:
    """The sentences of a file; the arguments and errors are those of `iterate_sentences`."""
    return list(iterate_sentences(source, column))


def iterate_sentences(source: str | Path, column: int | str | None = None) -> Iterator[str]:
    """The sentences of a file one by one: a sentence a line, or one column of a csv, tsv, jsonl or parquet file.

    Args:
        source: see `read_rows`; or `-`, standard input, a sentence a line.
        column: its name, or its position from 0; needed where there are several.

    Returns:
        An iterator that raises what is wrong with a row when it comes to it.

    Raises:
        UserError: no such file or column, several columns and none chosen, or a bad row.
    """
    rows = with_warning(iterate_rows(source, None if column is None else [column]))
    return (_only_sentence(source, row) for row, _ in rows)


def _only_sentence(source: str | Path, row: Row) -> str:
    if len(row) > 1:
        raise UserError(f"{source} has {len(row)} columns: say which one holds the sentences")
    return row[0]


def iterate_rows(
    source: str | Path,
    columns: Sequence[int | str] | None = None,
    on_invalid_row: str = "error",
    header: bool | None = True,
    split: str = "train",
) -> ReadRows:
    """Rows of sentences one by one, each with None; the arguments and errors are those of `read_rows`."""
    table = _open_source(str(source), header, split)
    return _read(source, table, _positions(source, table.header, columns), None, on_invalid_row)


def iterate_labeled_rows(
    source: str | Path,
    label_column: int | str,
    columns: Sequence[int | str] | None = None,
    on_invalid_row: str = "error",
    header: bool | None = True,
    split: str = "train",
) -> ReadRows:
    """Rows of sentences as `read_rows` reads them, each with its label.

    Args:
        source, on_invalid_row, header, split: see `read_rows`.
        label_column: the column of the labels, text or whole numbers, by name or by position from 0.
        columns: those of the sentences; all the others where None.

    Raises:
        UserError: as from `read_rows`; a label column that is one of the sentences', or the only one.
    """
    table = _open_source(str(source), header, split)
    label = _position(source, table.header, label_column)
    positions = _positions(source, table.header, columns)
    if positions is not None and label in positions:
        raise UserError(f"data.label_column={label_column} is one of data.columns too, which are the sentences'")
    records = ((place, _with_text_label(cells, label)) for place, cells in table.records)
    return _read(source, OpenedTable(table.header, records), positions, label, on_invalid_row)


def iterate_documents(source: str | Path, on_invalid_row: str = "error") -> ReadRows:
    """The sentences of a text file, rows of one, each with the name of the document that it stands in.

    A document's rows stand together, in their order.

    Args:
        source: a .txt file, here or on the hub: a sentence a line, a blank line between documents.
        on_invalid_row: see `read_rows`.

    Raises:
        UserError: as from `read_rows`; a source that keeps no documents apart.
    """
    table = _open_source(str(source), header=True, split="train")
    if table.documents is None:
        needed = "a .txt file with a sentence a line and a blank line between documents"
        raise UserError(f"{source} does not tell which sentences follow each other in a document: give {needed}")
    return _read(source, OpenedTable(["sentence", "document"], table.documents), [0], 1, on_invalid_row)


def with_warning(records: ReadRows) -> Iterator[tuple[Row, str | None]]:
    """The records, and a warning in the log after the last of them where rows were dropped."""
    warning = yield from records
    if warning:
        log.warning(warning)


def _read(
    source: str | Path, table: OpenedTable, positions: list[int] | None, label: int | None, on_invalid_row: str
) -> ReadRows:
    """The sentences at `positions`, all but the label where None; and the label, where there is a column of them."""
    if on_invalid_row not in ON_INVALID_ROW:
        raise UserError(f"data.on_invalid_row={on_invalid_row}: choose one of {', '.join(ON_INVALID_ROW)}")
    width = None if table.header is None else len(table.header)
    rows = dropped = blank = 0
    first = ""
    numbers: set[int] | None = None  # the columns of sentences that have held numbers alone
    for place, cells in table.records:
        if width is None and not isinstance(cells, Unreadable):
            width = len(cells)
        sentences = positions or [i for i in range(width or 0) if i != label]
        blanks = _blanks(cells, sentences) if on_invalid_row == "blank" else []
        wanted = [i for i in sentences if i not in blanks] if blanks else sentences
        problem = _problem(cells, wanted if label is None else [*wanted, label], width, table.header)
        if problem is None:
            assert not isinstance(cells, Unreadable)
            if not sentences:
                raise UserError(f"{source} has no column of sentences beside data.label_column={label}")
            row = tuple("" if i in blanks else cells[i].strip() for i in sentences)
            yield row, None if label is None else cells[label].strip()
            rows += 1
            blank += len(blanks)
            if numbers is None:
                numbers = set(sentences) if len(cells) > 1 else set()
            if numbers:
                numbers = {i for i in numbers if i not in blanks and is_number(cells[i])}
            if numbers and rows == _ROWS_TO_JUDGE_BY:
                break
        elif on_invalid_row == "drop":
            first = first or f"{place}: {problem}"
            dropped += 1
        else:
            raise UserError(f"{source}, {place}: {problem} (data.on_invalid_row=drop skips such rows in training)")
    if numbers:
        column = min(numbers)
        advice = "data.columns=[...] chooses the columns of sentences, data.label_column a column of classes"
        name = table.header[column] if table.header else column
        raise UserError(f"{source}: column {name} holds numbers, not sentences (in training, {advice})")
    if not rows:
        raise UserError(f"{source} has no rows{' that could be used' if dropped else ''}")
    if blank:
        return f"{source}: {blank} empty cells are read as empty sentences"
    return f"{source}: {dropped} bad rows dropped, the first at {first}" if dropped else None


def _positions(source: str | Path, header: list[str] | None, columns: Sequence[int | str] | None) -> list[int] | None:
    return None if columns is None else [_position(source, header, column) for column in columns]


def _position(source: str | Path, header: list[str] | None, column: int | str) -> int:
    if isinstance(column, int) and 0 <= column < (1 << 16 if header is None else len(header)):
        return column
    if header is not None and column in header:
        return header.index(str(column))
    has = "columns without names: count them from 0" if header is None else f"the columns {', '.join(header)}"
    raise UserError(f"no column {column} in {source}, which has {has}")


def _with_text_label(cells: Cells, label: int) -> Cells:
    """The same row with its label as text: datasets of the hub, jsonl and parquet may number their classes."""
    if isinstance(cells, Unreadable) or label >= len(cells) or not isinstance(cells[label], int):
        return cells
    return [*cells[:label], str(cells[label]), *cells[label + 1 :]]


def _blanks(cells: Cells, sentences: Sequence[int]) -> list[int]:
    """Return the empty sentences of a row that has another one."""
    if isinstance(cells, Unreadable):
        return []
    empty = [i for i in sentences if i < len(cells) and (cells[i] is None or not str(cells[i]).strip())]
    return empty if len(empty) < len(sentences) else []


def _problem(cells: Cells, positions: Sequence[int], width: int | None, header: list[str] | None) -> str | None:
    """What is wrong with a row; None where nothing is."""
    if isinstance(cells, Unreadable):
        return cells.problem
    if len(cells) != width:
        return f"{len(cells)} columns where there should be {width}"
    for i in positions:
        if i >= len(cells):
            return f"column {i} is wanted, and there are {len(cells)}, counted from 0"
        name = header[i] if header else i
        if problem := text_problem(cells[i]):
            return f"column {name} {problem}"
        if not cells[i].strip():
            return f"column {name} is empty"
    return None


def fingerprint(source: str | Path, split: str = "train") -> str:
    """What is another for other content: a file's SHA-256, or what the library `datasets` knows a hub dataset by.

    Raises:
        UserError: no such source.
    """
    found = _locate(str(source))
    if not isinstance(found, Path):
        return str(_load_hub_dataset(found, split)._fingerprint)
    check_is_file(found)
    return sha256_of(found)


def _open_source(name: str, header: bool | None, split: str) -> OpenedTable:
    found = _locate(name)
    return open_table(found, header) if isinstance(found, Path) else open_hub_dataset(found, split)


def _locate(name: str) -> Path | str:
    """The file that a source is, or the repository of a hub dataset."""
    if not name.startswith(HUB):
        return Path(name)
    owner, repository, file = [*name.removeprefix(HUB).split("/", 2), "", ""][:3]
    if not owner or not repository:
        raise UserError(f"{name}: write {HUB}OWNER/NAME or {HUB}OWNER/NAME/FILE")
    if file:
        return hub.download(f"{owner}/{repository}", file, repo_type="dataset")
    return f"{owner}/{repository}"


def open_hub_dataset(repository: str, split: str) -> OpenedTable:
    """A split of a dataset of the hub, downloaded or from the cache.

    Raises:
        UserError: there is none, or the hub is out of reach and the cache has no copy.
    """
    dataset = _load_hub_dataset(repository, split)
    names = list(dataset.column_names)
    return OpenedTable(names, ((f"row {i}", [row[name] for name in names]) for i, row in enumerate(dataset, 1)))


def _load_hub_dataset(repository: str, split: str) -> "datasets.Dataset":
    import datasets  # slow to import, and only this road needs it

    unavailable = hub.unavailable(repository, "dataset")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    offline = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = offline or unavailable is not None  # what is in the cache still loads, at once
    try:
        with hub.quiet("huggingface_hub", "datasets"):
            return datasets.load_dataset(repository, split=split)
    except Exception as error:  # the library has dozens of kinds
        why = f"it is not in the local cache, and the Hub returned: {unavailable}" if unavailable else hub.reason(error)
        raise UserError(f"dataset {repository}, split {split}, cannot be loaded: {why}") from error
    finally:
        datasets.config.HF_HUB_OFFLINE = offline
