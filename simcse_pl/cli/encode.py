"""Encode the sentences of a file or of standard input.

Sentences are encoded in chunks of 4,096, so the memory does not depend on their number. Each chunk is first written to
a file in the folder OUT.shards. After an interruption, the same command continues with the missing chunks. At the end,
the chunks are joined in OUT. `torchrun --nproc-per-node=N -m simcse_pl encode ...` encodes in N processes, on N GPUs if
there are any.

--precision int8 needs the range of each dimension. The ranges are those of the first 4,096 sentences. They are written
to OUT.ranges.npy, an array [2, dim] of the lowest and the highest values.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import torch

from simcse_pl.cli.common import (
    CHUNK_SIZE,
    STANDARD,
    add_column,
    add_encoder,
    chunks_of,
    chunks_with_progress,
    json_line,
    load_simcse,
)
from simcse_pl.data.readers.row_reader import fingerprint, iterate_sentences
from simcse_pl.inference.sentence_index import FLOAT32, PRECISIONS, Quantizer
from simcse_pl.utils.distributed import barrier, rank, ranks_of_torchrun, world_size
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write, write_text

_MANIFEST_FILE = "manifest.json"
_DECIMALS = 8  # in JSON: float32 has no more

Array = np.ndarray[Any, np.dtype[Any]]
Chunks = Iterable[tuple[list[str], Array]]  # sentences, and vectors [n, width] as written


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    about = "sentences: .txt (one per line), .csv, .tsv, .jsonl or .parquet; -: lines of standard input (default)"
    parser.add_argument("sentences", nargs="?", default=STANDARD, metavar="FILE", help=about)
    about = "output: .npy (vectors only) or .parquet (with the sentences); -: lines of JSON (default)"
    parser.add_argument("--out", default=STANDARD, metavar="OUT", help=about)
    add_column(parser)
    parser.add_argument("--no-normalize", action="store_true", help="do not scale vectors to length 1")
    about = "type of the vectors (default: %(default)s); binary: the signs of 8 dimensions in one byte"
    parser.add_argument("--precision", choices=PRECISIONS, default=FLOAT32, help=about)


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    out, sentences = Path(arguments.out), partial(iterate_sentences, arguments.sentences, arguments.column)
    if arguments.out == STANDARD and arguments.precision == FLOAT32:
        encode, _ = _encode_function(arguments)
        for chunk in chunks_with_progress(sentences(), "sentences encoded"):
            vectors = encode(chunk).astype(np.float64).round(_DECIMALS).tolist()
            rows = ({"sentence": one, "vector": vector} for one, vector in zip(chunk, vectors, strict=True))
            sys.stdout.writelines(map(json_line, rows))
        return
    if out.suffix not in _WRITERS or arguments.sentences == STANDARD:
        raise UserError(f"--out {out}: give a file that ends in {' or '.join(_WRITERS)}, and a file of sentences")
    folder = out.with_name(f"{out.name}.shards")
    with ranks_of_torchrun():
        _encode_shards(arguments, sentences(), folder)
        barrier()
        if rank() == 0:
            _join(folder, sentences(), out, arguments.precision)


def _encode_function(arguments: argparse.Namespace) -> tuple[Callable[[list[str]], Array], dict[str, Any]]:
    """Load the encoder; return a function from sentences to vectors [n, dim], and what determines these."""
    local_rank = os.environ.get("LOCAL_RANK")
    simcse = load_simcse(arguments, f"cuda:{local_rank}" if local_rank and torch.cuda.is_available() else None)
    encode = partial(simcse.encode, return_numpy=True, normalize_to_unit=not arguments.no_normalize)
    return encode, simcse.settings() | {"no_normalize": arguments.no_normalize, "bf16": arguments.bf16}


def _encode_shards(arguments: argparse.Namespace, sentences: Iterator[str], folder: Path) -> None:
    """Write the missing shards of this rank: every `world_size()`-th one."""
    encode, settings = _encode_function(arguments)
    manifest = {"shard_size": CHUNK_SIZE, "file": fingerprint(arguments.sentences), "column": arguments.column}
    path, text = folder / _MANIFEST_FILE, json.dumps(manifest | settings, indent=1)
    if not path.exists():
        write_text(path, text)
    if path.read_text("utf-8") != text:
        same = "continue with the same ones, or remove it to start again"
        raise UserError(f"{folder} has vectors of another file, encoder or option: {same}")
    chunks = chunks_with_progress(sentences, "sentences encoded") if rank() == 0 else chunks_of(sentences, CHUNK_SIZE)
    for number, chunk in enumerate(chunks):
        shard = _shard(folder, number)
        if number % world_size() == rank() and not shard.exists():
            with atomic_write(folder) as new:
                np.save(new / shard.name, encode(chunk))


def _join(folder: Path, sentences: Iterator[str], out: Path, precision: str) -> None:
    """Write one file with the vectors of all shards, atomically, and remove the folder."""
    rows = sum(len(np.load(path, mmap_mode="r")) for path in folder.glob("[0-9]*.npy"))
    quantizer = Quantizer.fitted(precision, first := np.load(_shard(folder, 0)))
    joined = folder / f"joined{out.suffix}"
    chunks = enumerate(chunks_of(sentences, CHUNK_SIZE))
    quantized = ((chunk, quantizer.quantize(np.load(_shard(folder, number)))) for number, chunk in chunks)
    _WRITERS[out.suffix](joined, quantized, rows, quantizer.quantize(first[:1]))
    if quantizer.ranges is not None:
        np.save(ranges := folder / "ranges.npy", quantizer.ranges)
        os.replace(ranges, out.with_name(f"{out.name}.ranges.npy"))
    os.replace(joined, out)
    shutil.rmtree(folder)


def _shard(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.npy"


def _write_npy(path: Path, chunks: Chunks, rows: int, like: Array) -> None:
    array = np.lib.format.open_memmap(path, mode="w+", dtype=like.dtype, shape=(rows, like.shape[1]))
    start = 0
    for sentences, vectors in chunks:
        array[start : start + len(sentences)] = vectors
        start += len(sentences)
    array.flush()


def _write_parquet(path: Path, chunks: Chunks, rows: int, like: Array) -> None:
    width = like.shape[1]
    vector = pyarrow.list_(pyarrow.from_numpy_dtype(like.dtype), width)
    schema = pyarrow.schema([("sentence", pyarrow.string()), ("vector", vector)])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for sentences, vectors in chunks:
            columns = [pyarrow.array(sentences), pyarrow.FixedSizeListArray.from_arrays(vectors.ravel(), width)]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))


_WRITERS = {".npy": _write_npy, ".parquet": _write_parquet}
