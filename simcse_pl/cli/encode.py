"""Encode the sentences of a file or of standard input.

Sentences are encoded in chunks of 4,096, so the memory does not depend on their number. If a file has several chunks,
each is first written to a file in the folder OUT.shards. After an interruption, the same command continues with the
missing chunks. At the end, the chunks are joined in OUT.

--precision int8 and --precision uint8 need the range of each dimension. The ranges are those of the first 4,096
sentences, or of the sentences of --calibration. They are written to OUT.ranges.npy, an array [2, dim] of the lowest and
the highest values.
"""

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow
import pyarrow.parquet

from simcse_pl.cli.common import (
    CHUNK_SIZE,
    STANDARD,
    add_column,
    add_encoder,
    chunks_with_progress,
    json_line,
    load_simcse,
)
from simcse_pl.data.readers.row_reader import fingerprint, iterate_sentences
from simcse_pl.inference.quantization import FLOAT32, PRECISIONS, RANGED, Quantizer, stored_width
from simcse_pl.inference.sharded_encoding import EncodeToArray, ShardFolder, encode_here, encode_in_processes
from simcse_pl.inference.simcse import SimCSE
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write

_DECIMALS = 8  # in JSON: float32 has no more

Chunks = Iterable[tuple[list[str], np.ndarray[Any, np.dtype[Any]]]]  # sentences, and vectors [n, width] as written


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    about = "sentences: .txt (one per line), .csv, .tsv, .jsonl or .parquet; -: lines of standard input (default)"
    parser.add_argument("sentences", nargs="?", default=STANDARD, metavar="FILE", help=about)
    about = (
        "output: .npy (vectors only), .parquet or .jsonl (with the sentences); -: .jsonl to standard output (default)"
    )
    parser.add_argument("--out", default=STANDARD, metavar="OUT", help=about)
    add_column(parser)
    parser.add_argument("--no-normalize", action="store_true", help="do not scale vectors to length 1")
    about = "type of the vectors (default: %(default)s); binary: the signs of 8 dimensions in one byte"
    parser.add_argument("--precision", choices=PRECISIONS, default=FLOAT32, help=about)
    about = "file of sentences for the ranges of int8 and uint8 (default: the first 4,096 sentences of the input)"
    parser.add_argument("--calibration", metavar="FILE", help=about)
    about = "encode in N processes; --device cuda:0,cuda:1 starts one process for each GPU"
    parser.add_argument("--processes", type=int, metavar="N", help=about)
    about = "encode only part I of N, as one of N jobs on a shared disk; after the jobs, run the command without --part"
    parser.add_argument("--part", type=_part, metavar="I/N", help=about)


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    out, devices = Path(arguments.out), _devices(arguments)
    if arguments.out != STANDARD and (out.suffix not in _WRITERS or out.is_dir()):
        raise UserError(f"--out {out}: give a file that ends in {', '.join(_WRITERS)}, or - for standard output")
    _check_precision(arguments)
    open_sentences = partial(iterate_sentences, arguments.sentences, arguments.column)
    option = "--part" if arguments.part else "several processes" if len(devices) > 1 else None
    if STANDARD not in (arguments.out, arguments.sentences):
        total = sum(map(len, chunks_with_progress(open_sentences(), "sentences read")))
        if option or total > CHUNK_SIZE or _shard_folder(out).exists():
            _encode_in_shards(arguments, devices, open_sentences, total)
            return
    elif option:
        raise UserError(f"{option}: give a file of sentences and an output file, such as --out vectors.npy")
    sentences, simcse = open_sentences(), load_simcse(arguments)
    stored_width(arguments.precision, simcse.encoder.dim)
    encode = _encode_function(arguments, simcse)
    chunks = ((chunk, encode(chunk)) for chunk in chunks_with_progress(sentences, "sentences encoded"))
    if arguments.out == STANDARD:
        quantize = Quantizer(arguments.precision).quantize
        sys.stdout.writelines(_json_lines((chunk, quantize(vectors)) for chunk, vectors in chunks))
        return
    write = partial(_write, arguments.precision, _calibrated(arguments, encode))
    with atomic_write(out.parent, last=out.name) as new, (new / out.name).open("wb") as file:
        write(file, chunks, simcse.encoder.dim)


def _check_precision(arguments: argparse.Namespace) -> None:
    if arguments.calibration and arguments.precision not in RANGED:
        raise UserError("--calibration needs --precision int8 or uint8: the other vectors have no ranges")
    if arguments.calibration == STANDARD:
        raise UserError("--calibration takes a file, not standard input")
    if arguments.precision in RANGED and arguments.out == STANDARD:
        raise UserError(f"--precision {arguments.precision}: give --out FILE, because the ranges are written beside it")


def _calibrated(arguments: argparse.Namespace, encode: EncodeToArray) -> Quantizer | None:
    """Return the quantizer of --precision; None if its ranges are those of the first chunk."""
    if not arguments.calibration:
        return None if arguments.precision in RANGED else Quantizer(arguments.precision)
    sentences = iterate_sentences(arguments.calibration, arguments.column)
    chunks = chunks_with_progress(sentences, "sentences of --calibration encoded")
    return Quantizer.calibrated(arguments.precision, map(encode, chunks))


def _write(precision: str, quantizer: Quantizer | None, file: BinaryIO, chunks: Chunks, dim: int) -> None:
    """Quantize and write vectors [n, dim] float32, and write the ranges to a file beside it."""
    if quantizer is None:
        chunks = iter(chunks)
        first = list(itertools.islice(chunks, 1))
        quantizer = Quantizer.calibrated(precision, (vectors for _, vectors in first))
        chunks = itertools.chain(first, chunks)
    quantized = ((sentences, quantizer.quantize(vectors)) for sentences, vectors in chunks)
    _WRITERS[Path(file.name).suffix](file, quantized, stored_width(precision, dim), quantizer.dtype)
    if quantizer.ranges is not None:
        np.save(f"{file.name}.ranges.npy", quantizer.ranges)


def _encode_in_shards(
    arguments: argparse.Namespace, devices: list[str | None], open_sentences: Callable[[], Iterator[str]], total: int
) -> None:
    out, (part, parts) = Path(arguments.out), arguments.part or (1, 1)
    simcse = load_simcse(arguments, devices[0] if len(devices) == 1 else "cpu")
    manifest = {"version": 1, "shard_size": CHUNK_SIZE, "sentences": total, "column": arguments.column}
    manifest |= {"no_normalize": arguments.no_normalize, "bf16": arguments.bf16, **simcse.settings()}
    manifest |= {"dim": simcse.encoder.dim, "file": fingerprint(arguments.sentences)}
    stored_width(arguments.precision, simcse.encoder.dim)
    shards = ShardFolder(_shard_folder(out), manifest)
    encode_array = _encode_function(arguments, simcse)
    write = None if arguments.part else partial(_write, arguments.precision, _calibrated(arguments, encode_array))
    encode = partial(encode_here, encode_array)
    if len(devices) > 1:
        del simcse, encode_array  # each process loads its own
        encode = partial(encode_in_processes, partial(_load_in_process, arguments), devices)
    shards.encode(open_sentences(), encode, range(part - 1, shards.count, parts))
    if write is None:
        print(f"part {part}/{parts} is done; after all parts, the command without --part writes {out}")
    elif fingerprint(arguments.sentences) != manifest["file"]:
        raise UserError(f"{arguments.sentences} changed while it was encoded: remove {shards.folder} to start again")
    else:
        shards.join(open_sentences(), out, write)


def _encode_function(arguments: argparse.Namespace, simcse: SimCSE) -> EncodeToArray:
    return partial(simcse.encode, return_numpy=True, normalize_to_unit=not arguments.no_normalize)


def _load_in_process(arguments: argparse.Namespace, device: str | None) -> EncodeToArray:
    return _encode_function(arguments, load_simcse(arguments, device))


def _shard_folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.shards")


def _devices(arguments: argparse.Namespace) -> list[str | None]:
    """Return the device of each process; None is the default."""
    if arguments.processes is not None and arguments.processes < 1:
        raise UserError(f"--processes {arguments.processes}: it must be at least 1")
    if "," not in (arguments.device or ""):
        return [arguments.device] * (arguments.processes or 1)
    if arguments.processes:
        raise UserError(f"--processes {arguments.processes}: --device {arguments.device} starts one process per device")
    return [*arguments.device.split(",")]


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text}: write I/N with I from 1 to N, such as 2/8")
    return int(found[1]), int(found[2])


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
