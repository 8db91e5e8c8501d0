"""Files of vectors, written part by part: .npy, .parquet, .jsonl, or lines of JSON on standard output.

A file appears when it is whole: where writing ends early, what was there before stays.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from simcse_pl.cli.common import STANDARD, json_line
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write

Array = np.ndarray[Any, np.dtype[Any]]
_DECIMALS = 8  # in JSON: float32 has no more

Write = Callable[[list[str], Array], None]  # sentences, and their vectors [n, dim] float32


def check_out(out: str) -> None:
    """Refuse, before anything slow begins, what cannot be written.

    Raises:
        UserError: a folder, or a name that ends in something else.
    """
    if out != STANDARD and Path(out).suffix not in _WRITERS:
        raise UserError(f"--out {out}: its name should end in {', '.join(_WRITERS)}, or it is - for standard output")
    if out != STANDARD and Path(out).is_dir():
        raise UserError(f"--out {out} is a folder: name a file")


@contextmanager
def vector_writer(out: str, dim: int) -> Iterator[Write]:
    """What takes in sentences with their vectors, and has written them all at the end.

    Args:
        out: the file, in the format that its name ends in; `-` for standard output.
        dim: the width of a vector.
    """
    if out == STANDARD:
        yield lambda sentences, vectors: print(*_json_lines(sentences, vectors), sep="", end="")
        return
    path = Path(out)
    with atomic_write(path.parent) as new, _WRITERS[path.suffix](new / path.name, dim) as write:
        yield write


def _json_lines(sentences: list[str], vectors: Array) -> Iterator[str]:
    rows = zip(sentences, vectors.astype(np.float64).round(_DECIMALS).tolist(), strict=True)
    return (json_line({"sentence": sentence, "vector": vector}) for sentence, vector in rows)


@contextmanager
def _jsonl(path: Path, dim: int) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:
        yield lambda sentences, vectors: file.writelines(_json_lines(sentences, vectors))


@contextmanager
def _npy(path: Path, dim: int) -> Iterator[Write]:
    """The header says how many rows there are, and has room for more digits: it is written again at the end."""
    rows = 0

    def write_header() -> None:
        file.seek(0)
        about = {"descr": "<f4", "fortran_order": False, "shape": (rows, dim)}
        np.lib.format.write_array_header_1_0(file, about)

    def write(sentences: list[str], vectors: Array) -> None:
        nonlocal rows
        file.write(vectors.astype("<f4", copy=False).tobytes())
        rows += len(vectors)

    with path.open("wb") as file:
        write_header()
        yield write
        write_header()


@contextmanager
def _parquet(path: Path, dim: int) -> Iterator[Write]:
    vector = pyarrow.list_(pyarrow.float32(), dim)
    schema = pyarrow.schema([("sentence", pyarrow.string()), ("vector", vector)])

    def write(sentences: list[str], vectors: Array) -> None:
        columns = [pyarrow.array(sentences), pyarrow.FixedSizeListArray.from_arrays(vectors.ravel(), dim)]
        file.write_table(pyarrow.Table.from_arrays(columns, schema=schema))

    with pyarrow.parquet.ParquetWriter(path, schema) as file:
        yield write


_WRITERS = {".npy": _npy, ".parquet": _parquet, ".jsonl": _jsonl}
