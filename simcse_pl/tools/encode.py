"""Encode the sentences of a file or of standard input.

Sentences are encoded in chunks of 4,096, so the memory does not depend on their number. Each chunk is first written to
a file in the folder OUT.shards. After an interruption, the same command continues with the missing chunks. At the end,
the chunks are joined in OUT. `torchrun --nproc-per-node=N -m simcse_pl encode ...` encodes in N processes, on N GPUs if
there are any.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simcse_pl.data.rows import iterate_sentences
from simcse_pl.data.sources import fingerprint
from simcse_pl.tools import common
from simcse_pl.tools.common import add_column, add_encoder, chunks_with_progress, json_line, layout, load_simcse
from simcse_pl.utils.distributed import barrier, rank, ranks_of_torchrun, world_size
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import STANDARD, atomic_open, write_text

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
    out, file_layout = Path(arguments.out), layout(arguments)
    sentences = partial(iterate_sentences, arguments.sentences, arguments.column, layout=file_layout)
    if arguments.out == STANDARD:
        encode, _ = _encode_function(arguments)
        for chunk in chunks_with_progress(sentences(), "sentences encoded"):
            vectors = encode(chunk).astype(np.float64).round(8).tolist()  # float32 has no more decimals
            rows = ({"sentence": sentence, "vector": vector} for sentence, vector in zip(chunk, vectors, strict=True))
            sys.stdout.writelines(map(json_line, rows))
        return
    if out.suffix != ".npy" or arguments.sentences == STANDARD:
        raise UserError(f"--out {out}: give a file that ends in .npy, and a file of sentences")
    folder = out.with_name(f"{out.name}.shards")
    with ranks_of_torchrun():
        _encode_shards(arguments, sentences(), folder)
        barrier()
        if rank() == 0:
            _join(folder, out)


def _encode_function(arguments: argparse.Namespace) -> tuple[Callable[[list[str]], Array], dict[str, Any]]:
    """Load the encoder; return a function from sentences to vectors [n, dim], and what determines these."""
    simcse = load_simcse(arguments)
    encode = partial(simcse.encode, return_numpy=True, normalize_to_unit=not arguments.no_normalize)
    options = {name: getattr(arguments, name) for name in ("no_normalize", "bf16", "prompt_name")}
    return partial(encode, prompt_name=arguments.prompt_name), simcse.settings() | options


def _encode_shards(arguments: argparse.Namespace, sentences: Iterator[str], folder: Path) -> None:
    """Write the missing shards of this rank: every `world_size()`-th one."""
    encode, settings = _encode_function(arguments)
    source = {"file": fingerprint(arguments.sentences), "column": arguments.column, "layout": asdict(layout(arguments))}
    manifest = {"shard_size": common.CHUNK_SIZE, **source}
    path, text = folder / "manifest.json", json.dumps(manifest | settings, indent=1)
    if not path.exists():
        write_text(path, text)
    if path.read_text("utf-8") != text:
        same = "continue with the same ones, or remove it to start again"
        raise UserError(f"{folder} has vectors of another file, encoder or option: {same}")
    for number, chunk in enumerate(chunks_with_progress(sentences, "sentences encoded", shown=rank() == 0)):
        shard = folder / f"{number:06d}.npz"  # which has a CRC
        if number % world_size() == rank() and not shard.exists():
            if not np.isfinite(vectors := encode(chunk)).all():
                raise UserError("the encoder returns a vector that is not finite")
            with atomic_open(shard, "wb") as file:
                np.savez(file, vectors)


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
    shutil.rmtree(folder)


def _read(shard: Path) -> Array:
    with reraise_as(f"{shard} is damaged: remove it, and run the command again"), np.load(shard) as arrays:
        vectors: Array = arrays["arr_0"]
    return vectors
