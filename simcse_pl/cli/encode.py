"""Encode the sentences of a file or of standard input in chunks, so that memory does not grow with their number.

--precision int8 and uint8 need the range of each dimension. The ranges are those of the first 4,096 sentences, or of
the sentences of --calibration, and are written to OUT.ranges.npy, [2, dim]: the lowest and the highest values.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow
import pyarrow.parquet

from simcse_pl.cli.common import STANDARD, add_column, add_encoder, chunks_with_progress, json_line, load_simcse
from simcse_pl.data.readers.row_reader import iterate_sentences
from simcse_pl.inference.quantization import FLOAT32, PRECISIONS, RANGED, Quantizer, stored_width
from simcse_pl.inference.simcse import SimCSE
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write

_DECIMALS = 8  # in JSON: float32 has no more

Chunks = Iterable[tuple[list[str], np.ndarray[Any, np.dtype[Any]]]]  # sentences, and vectors [n, width] as written


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    about = ".txt (one sentence per line), .csv, .tsv, .jsonl or .parquet; -: text from standard input (default)"
    parser.add_argument("sentences", nargs="?", default=STANDARD, metavar="FILE", help=about)
    about = ".npy (vectors only), .parquet or .jsonl (with the sentences); -: .jsonl to standard output (default)"
    parser.add_argument("--out", default=STANDARD, metavar="OUT", help=about)
    add_column(parser)
    parser.add_argument("--no-normalize", action="store_true", help="do not scale vectors to length 1")
    about = "type of the vectors (default: %(default)s); binary: the signs of 8 dimensions in a byte, uint8"
    parser.add_argument("--precision", choices=PRECISIONS, default=FLOAT32, help=about)
    about = "file of sentences for the ranges of int8 and uint8 (default: the first 4,096 sentences of the input)"
    parser.add_argument("--calibration", metavar="FILE", help=about)


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    out = Path(arguments.out)
    if arguments.out != STANDARD and (out.suffix not in _WRITERS or out.is_dir()):
        raise UserError(f"--out {out}: give a file that ends in {', '.join(_WRITERS)}, or - for standard output")
    if arguments.calibration and arguments.precision not in RANGED:
        raise UserError("--calibration needs --precision int8 or uint8: the other vectors have no ranges")
    if arguments.calibration == STANDARD:
        raise UserError("--calibration takes a file, not standard input")
    if arguments.precision in RANGED and arguments.out == STANDARD:
        raise UserError(f"--precision {arguments.precision}: give --out FILE, because the ranges are written beside it")
    sentences = iterate_sentences(arguments.sentences, arguments.column)
    simcse = load_simcse(arguments)
    stored_width(arguments.precision, simcse.encoder.dim)
    chunks, calibration = _encoded(simcse, sentences, arguments), None
    if arguments.calibration:
        calibration = _encoded(simcse, iterate_sentences(arguments.calibration, arguments.column), arguments)
    if arguments.out == STANDARD:
        quantize = Quantizer(arguments.precision).quantize
        sys.stdout.writelines(_json_lines((chunk, quantize(vectors)) for chunk, vectors in chunks))
        return
    with atomic_write(out.parent, last=out.name) as new, (new / out.name).open("wb") as file:
        _write(arguments.precision, calibration, file, chunks, simcse.encoder.dim)


def _encoded(simcse: SimCSE, sentences: Iterable[str], arguments: argparse.Namespace) -> Chunks:
    for chunk in chunks_with_progress(sentences, "sentences encoded"):
        yield chunk, simcse.encode(chunk, return_numpy=True, normalize_to_unit=not arguments.no_normalize)


def _write(precision: str, calibration: Chunks | None, file: BinaryIO, chunks: Chunks, dim: int) -> None:
    """Quantize and write vectors [n, dim] float32, and write the ranges to a file beside it.

    The ranges are those of the vectors of `calibration`; None for the first chunk.
    """
    if calibration is None and precision in RANGED:
        chunks = iter(chunks)
        calibration = list(itertools.islice(chunks, 1))
        chunks = itertools.chain(calibration, chunks)
    quantizer = Quantizer.calibrated(precision, (vectors for _, vectors in calibration or ()))
    chunks = ((sentences, quantizer.quantize(vectors)) for sentences, vectors in chunks)
    _WRITERS[Path(file.name).suffix](file, chunks, stored_width(precision, dim), quantizer.dtype)
    if quantizer.ranges is not None:
        np.save(f"{file.name}.ranges.npy", quantizer.ranges)


def _json_lines(chunks: Chunks) -> Iterator[str]:
    for sentences, vectors in chunks:
        rounded = vectors if vectors.dtype.kind in "iu" else vectors.astype(np.float64).round(_DECIMALS)
        for sentence, vector in zip(sentences, rounded.tolist(), strict=True):
            yield json_line({"sentence": sentence, "vector": vector})


def _write_jsonl(file: BinaryIO, chunks: Chunks, width: int, dtype: np.dtype[Any]) -> None:
    file.writelines(line.encode() for line in _json_lines(chunks))


def _write_npy(file: BinaryIO, chunks: Chunks, width: int, dtype: np.dtype[Any]) -> None:
    header: dict[str, Any] = {"descr": dtype.str, "fortran_order": False, "shape": (0, width)}
    np.lib.format.write_array_header_1_0(file, header)  # padded, so that it can be rewritten with any number of rows
    total = 0
    for _, vectors in chunks:
        file.write(vectors.astype(dtype, copy=False).tobytes())
        total += len(vectors)
    file.seek(0)
    np.lib.format.write_array_header_1_0(file, header | {"shape": (total, width)})


def _write_parquet(file: BinaryIO, chunks: Chunks, width: int, dtype: np.dtype[Any]) -> None:
    vector = pyarrow.list_(pyarrow.from_numpy_dtype(dtype), width)
    schema = pyarrow.schema([("sentence", pyarrow.string()), ("vector", vector)])
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for sentences, vectors in chunks:
            columns = [pyarrow.array(sentences), pyarrow.FixedSizeListArray.from_arrays(vectors.ravel(), width)]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))


_WRITERS: dict[str, Callable[[BinaryIO, Chunks, int, np.dtype[Any]], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}
