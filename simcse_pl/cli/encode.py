"""Encode the sentences of a file or of standard input in chunks, so that memory does not grow with their number."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow
import pyarrow.parquet

from simcse_pl.cli.common import STANDARD, add_column, add_encoder, chunks_with_progress, json_line, load_simcse
from simcse_pl.data.readers.row_reader import iterate_sentences
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write

_DECIMALS = 8  # in JSON: float32 has no more

Chunks = Iterable[tuple[list[str], np.ndarray[Any, np.dtype[Any]]]]  # sentences, and vectors [n, dim] float32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    about = ".txt (one sentence per line), .csv, .tsv, .jsonl or .parquet; -: text from standard input (default)"
    parser.add_argument("sentences", nargs="?", default=STANDARD, metavar="FILE", help=about)
    about = ".npy (vectors only), .parquet or .jsonl (with the sentences); -: .jsonl to standard output (default)"
    parser.add_argument("--out", default=STANDARD, metavar="OUT", help=about)
    add_column(parser)
    parser.add_argument("--no-normalize", action="store_true", help="do not scale vectors to length 1")


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    out = Path(arguments.out)
    if arguments.out != STANDARD and (out.suffix not in _WRITERS or out.is_dir()):
        raise UserError(f"--out {out}: give a file that ends in {', '.join(_WRITERS)}, or - for standard output")
    sentences = iterate_sentences(arguments.sentences, arguments.column)
    simcse = load_simcse(arguments)
    chunks = (
        (chunk, simcse.encode(chunk, return_numpy=True, normalize_to_unit=not arguments.no_normalize))
        for chunk in chunks_with_progress(sentences, "sentences encoded")
    )
    if arguments.out == STANDARD:
        sys.stdout.writelines(_json_lines(chunks))
        return
    with atomic_write(out.parent) as new, (new / out.name).open("wb") as file:
        _WRITERS[out.suffix](file, chunks, simcse.encoder.dim)


def _json_lines(chunks: Chunks) -> Iterator[str]:
    for sentences, vectors in chunks:
        for sentence, vector in zip(sentences, vectors.astype(np.float64).round(_DECIMALS).tolist(), strict=True):
            yield json_line({"sentence": sentence, "vector": vector})


def _write_jsonl(file: BinaryIO, chunks: Chunks, dim: int) -> None:
    file.writelines(line.encode() for line in _json_lines(chunks))


def _write_npy(file: BinaryIO, chunks: Chunks, dim: int) -> None:
    header: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (0, dim)}
    np.lib.format.write_array_header_1_0(file, header)  # padded, so that it can be rewritten with any number of rows
    total = 0
    for _, vectors in chunks:
        file.write(vectors.astype("<f4", copy=False).tobytes())
        total += len(vectors)
    file.seek(0)
    np.lib.format.write_array_header_1_0(file, header | {"shape": (total, dim)})


def _write_parquet(file: BinaryIO, chunks: Chunks, dim: int) -> None:
    vector = pyarrow.list_(pyarrow.float32(), dim)
    schema = pyarrow.schema([("sentence", pyarrow.string()), ("vector", vector)])
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for sentences, vectors in chunks:
            columns = [pyarrow.array(sentences), pyarrow.FixedSizeListArray.from_arrays(vectors.ravel(), dim)]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))


_WRITERS: dict[str, Callable[[BinaryIO, Chunks, int], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}
