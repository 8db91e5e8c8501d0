"""Encode the sentences of a file or of standard input.

Sentences are encoded in chunks of 1,024, so the memory does not depend on their number. Each chunk is first written to
a file in the folder OUT.shards. After an interruption, the same command continues with the missing chunks. At the end,
the chunks are joined in OUT. `torchrun --nproc-per-node=N -m simcse_pl encode ...` encodes in N processes, on N GPUs if
there are any.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simcse_pl.data.sources import content_hash
from simcse_pl.tools.common import (
    CHUNK_SIZE,
    add_column,
    add_encoder,
    chunks_with_progress,
    json_line,
    layout,
    load_simcse,
    read_sentences,
)
from simcse_pl.utils.distributed import barrier, rank, ranks_of_torchrun, world_size
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import STANDARD, atomic_open, locked, write_text
from simcse_pl.utils.hub import quiet
from simcse_pl.utils.tensors import Encode

Array = np.ndarray[Any, np.dtype[Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser, prompt="the sentences (default: none)")
    text = "sentences: .txt (one per line), .csv, .tsv, .json, .jsonl or .parquet; -: lines of standard input (default)"
    parser.add_argument("sentences", nargs="?", default=STANDARD, metavar="FILE", help=text)
    text = "output file (.npy); -: lines of JSON with the sentences, to standard output (default)"
    parser.add_argument("--out", default=STANDARD, metavar="OUT", help=text)
    add_column(parser)
    parser.add_argument("--no-normalize", action="store_true", help="do not scale vectors to length 1")


def run(arguments: argparse.Namespace) -> None:
    out, sentences = Path(arguments.out), partial(read_sentences, arguments.sentences, arguments)
    if arguments.out != STANDARD and (out.suffix != ".npy" or arguments.sentences == STANDARD):
        what = "give a file of sentences, too" if out.suffix == ".npy" else "vectors are .npy: give such a name"
        raise UserError(f"--out {out}: {what}, or leave out --out for lines of JSON")
    with quiet("simcse_pl.data"):  # it warns when it reads the file again
        total = None if arguments.sentences == STANDARD else sum(1 for _ in sentences())
    if arguments.out == STANDARD:
        encode, _ = _encode_function(arguments)
        for chunk in chunks_with_progress(sentences(), "encoding", total, size=CHUNK_SIZE):
            vectors = encode(chunk).double().round(decimals=8).tolist()  # float32 has no more decimals
            rows = ({"sentence": sentence, "vector": vector} for sentence, vector in zip(chunk, vectors, strict=True))
            sys.stdout.writelines(map(json_line, rows))
        return
    folder = out.with_name(f"{out.name}.shards")
    with ranks_of_torchrun(), locked(folder):
        _encode_shards(arguments, sentences(), folder, total)
        barrier()
        if rank() == 0:
            _join(folder, out)


def _encode_function(arguments: argparse.Namespace) -> tuple[Encode, dict[str, Any]]:
    """Load the encoder; return a function from sentences to vectors [n, dim], and what determines these."""
    simcse = load_simcse(arguments)
    options = {name: getattr(arguments, name) for name in ("no_normalize", "bf16", "prompt_name")}
    how = {"normalize_to_unit": not arguments.no_normalize, "prompt_name": arguments.prompt_name}
    return partial(simcse.encode, **how), simcse.settings() | options


def _encode_shards(arguments: argparse.Namespace, sentences: Iterator[str], folder: Path, total: int | None) -> None:
    """Write the missing shards of this rank: every `world_size()`-th one."""
    encode, settings = _encode_function(arguments)
    manifest = {"shard_size": CHUNK_SIZE, "file": content_hash(arguments.sentences), "column": arguments.column}
    manifest |= {"layout": asdict(layout(arguments))} | settings
    path, text = folder / "manifest.json", json.dumps(manifest, indent=1)
    if not path.exists():
        write_text(path, text)
    if path.read_text("utf-8") != text:
        same = "continue with the same ones, or remove it to start again"
        raise UserError(f"{folder} has vectors of another file, encoder or option: {same}")
    for number, chunk in enumerate(
        chunks_with_progress(sentences, "encoding", total, size=CHUNK_SIZE, shown=rank() == 0)
    ):
        shard = folder / f"{number:06d}.npz"  # which has a CRC
        if number % world_size() == rank() and not shard.exists():
            vectors = encode(chunk).numpy()
            with atomic_open(shard, "wb") as file:
                np.savez(file, vectors)
    if content_hash(arguments.sentences) != manifest["file"]:
        raise UserError(f"{arguments.sentences} has changed while it was read: remove {folder}, and start again")


def _join(folder: Path, out: Path) -> None:
    """Write one file with the vectors of all shards, atomically, and remove the folder."""
    shards = sorted(folder.glob("[0-9]*.npz"))
    first, last = _read(shards[0]), _read(shards[-1])
    shape = (len(first) * (len(shards) - 1) + len(last), *first.shape[1:])
    header = {"descr": np.lib.format.dtype_to_descr(first.dtype), "fortran_order": False, "shape": shape}
    with atomic_open(out, "wb") as file:  # np.save would not notice a full disk
        np.lib.format.write_array_header_1_0(file, header)
        for shard in shards:
            file.write(_read(shard).tobytes())
    for shard in shards:  # before the manifest, which says whose they are
        shard.unlink()
    shutil.rmtree(folder)


def _read(shard: Path) -> Array:
    with reraise_as(f"{shard} is damaged: remove it, and run the command again"), np.load(shard) as arrays:
        vectors: Array = arrays["arr_0"]
    return vectors
