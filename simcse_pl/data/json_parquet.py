"""The rows of JSON and parquet files, each with its place in the file."""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet

from simcse_pl.utils.errors import reraise_as
from simcse_pl.utils.files import check_is_file

OpenedRows = tuple[Iterator[tuple[str, Sequence[Any] | str]], int, list[str], str]

_INSPECTED = 1000  # objects, to find their keys


def rows_of_json(path: Path, lines: Iterable[str], whole: bool) -> OpenedRows:
    """Return the rows of an array of objects, or of an object per line; keys of the first 1,000 are the columns.

    Returns:
        The rows, the number of their columns, the columns' names, and how the file was read, in words.
    """
    objects = _array(path, lines) if whole else _values(lines)
    head = list(itertools.islice(objects, _INSPECTED))
    keys = list(dict.fromkeys(key for _, values in head if isinstance(values, dict) for key in values))

    def cells(values: Any) -> list[Any] | str:
        if not isinstance(values, dict):
            return "not a JSON object"
        return [values.get(key) for key in keys] + [value for key, value in values.items() if key not in keys]

    rows = ((place, cells(values)) for place, values in itertools.chain(head, objects))
    return rows, len(keys), keys, f"JSON objects with the keys {', '.join(keys)}"


def _array(path: Path, lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    with reraise_as(f"{path}: not JSON"):
        yield from ((f"object {i}", value) for i, value in enumerate(json.loads("\n".join(lines)), 1))


def _values(lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError):
                yield f"line {number}", None


def rows_of_parquet(path: Path) -> OpenedRows:
    """Return the rows of a parquet file; see `rows_of_json`."""
    check_is_file(path)
    damaged = f"{path} cannot be read"
    with reraise_as(damaged):
        file = pyarrow.parquet.ParquetFile(path)

    def rows() -> Iterator[Sequence[Any]]:
        with reraise_as(damaged):
            for batch in file.iter_batches():
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    names = list(file.schema_arrow.names)
    places = ((f"row {i}", row) for i, row in enumerate(rows(), 1))
    return places, len(names), names, f"parquet with the columns {', '.join(names)}"
