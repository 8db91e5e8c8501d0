"""Encode the sentences of a file or of standard input.

Sentences are encoded in chunks of 1,024, so the memory does not depend on their number. Each chunk is first written to
a file in the folder OUT.shards. After an interruption, the same command continues with the missing chunks. At the end,
the chunks are joined in OUT. `torchrun --nproc-per-node=N -m simcse_pl encode ...` encodes in N processes, on N GPUs if
there are any.
"""

import argparse
import itertools
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from filelock import FileLock, Timeout

from simcse_pl.data.rows import iterate_rows, iterate_sentences
from simcse_pl.data.sources import content_hash
from simcse_pl.tools.common import add_column, add_columns, add_encoder, column, layout, load_simcse, read_sentences
from simcse_pl.tools.sentence_index import SETTINGS_FILE
from simcse_pl.utils.distributed import barrier, rank, ranks_of_torchrun, world_size
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import STANDARD, atomic_open, check_is_file, remove_half_written, write_text
from simcse_pl.utils.hub import quiet
from simcse_pl.utils.tensors import Encode, cosine_similarity
from simcse_pl.utils.terminal import counting_bar, positive, real

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[Any]]
CHUNK_SIZE = 1024  # sentences; the encoder sorts them by length


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
        for chunk in _chunks_with_progress(sentences(), "encoding", total):
            vectors = encode(chunk).double().round(decimals=8).tolist()  # float32 has no more decimals
            rows = ({"sentence": sentence, "vector": vector} for sentence, vector in zip(chunk, vectors, strict=True))
            sys.stdout.writelines(map(_json_line, rows))
        return
    folder = out.with_name(f"{out.name}.shards")
    with ranks_of_torchrun():
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
    for number, chunk in enumerate(_chunks_with_progress(sentences, "encoding", total, shown=rank() == 0)):
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


class Search:
    """Find the sentences of an index or of a file that are nearest to queries."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_encoder(parser, prompt="the queries (default: query, if the encoder has it)")
        parser.add_argument("corpus", metavar="CORPUS", help="the folder of an index, or a file of sentences")
        parser.add_argument("queries", nargs="*", metavar="QUERY", help="queries (default: lines of standard input)")
        add_column(parser)
        _add_id(parser)
        text = "largest number of sentences per query (default: %(default)s)"
        parser.add_argument("--top-k", type=positive, default=5, metavar="N", help=text)
        parser.add_argument("--threshold", type=real, metavar="X", help="lowest cosine similarity (default: none)")

    @staticmethod
    def run(arguments: argparse.Namespace) -> None:
        # A mistake in the name or the column of a file costs no time before the encoder is loaded.
        given = None if Path(arguments.corpus).is_dir() else _read_with_ids(arguments.corpus, arguments)
        queries = arguments.queries or list(iterate_sentences(STANDARD))
        simcse = load_simcse(arguments)
        if given is None:
            simcse.load_index(arguments.corpus)
        else:
            simcse.build_index(given[0])
        options = {name: getattr(arguments, name) for name in ("threshold", "top_k", "prompt_name")}
        results = simcse.search(queries, **options)
        assert simcse.index
        ids = given[1] if given else simcse.index.ids
        as_json = not sys.stdout.isatty()
        for query, neighbours in zip(queries, results, strict=True):
            if not as_json:
                print(query)
            for sentence, similarity in neighbours:
                row = {"query": query, "id": ids.get(sentence), "sentence": sentence}
                line = f"  {similarity:.4f}  {ids.get(sentence, '–')}  {sentence}\n"
                sys.stdout.write(_json_line(row | {"similarity": round(similarity, 4)}) if as_json else line)


class Index:
    """Encode the sentences of a file and save their vectors as an index. A search in it encodes only the queries."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        text = "the sentences (default: document, if the encoder has it; with --add, that of the index)"
        add_encoder(parser, prompt=text)
        text = "sentences: .txt, .csv, .tsv, .json, .jsonl or .parquet; -: standard input"
        parser.add_argument("sentences", metavar="FILE", help=text)
        parser.add_argument("folder", metavar="FOLDER", help="folder of the index")
        add_column(parser)
        _add_id(parser)
        text = "the vectors of FILE that `simcse encode` has written, which are then not computed again"
        parser.add_argument("--vectors", metavar="FILE.npy", help=text)
        parser.add_argument("--add", action="store_true", help="add the sentences to the index in FOLDER")

    @staticmethod
    def run(arguments: argparse.Namespace) -> None:
        folder = Path(arguments.folder)
        if arguments.add:
            check_is_file(folder / SETTINGS_FILE)
        elif (folder / SETTINGS_FILE).exists():
            raise UserError(f"{folder} contains an index: use --add to add to it, or give another directory")
        try:  # the sentences of two commands at once would be lost
            with FileLock(folder / ".lock", timeout=0) if arguments.add else nullcontext():
                Index._write(arguments, folder)
        except Timeout:
            raise UserError(f"{folder}: another command adds to it: wait for its end") from None

    @staticmethod
    def _write(arguments: argparse.Namespace, folder: Path) -> None:
        """Build an index, or add to one, and save it."""
        remove_half_written(folder)
        sentences, ids = _read_with_ids(arguments.sentences, arguments)
        with reraise_as(f"--vectors {arguments.vectors}: it should be a file that simcse encode wrote"):
            vectors = np.load(arguments.vectors) if arguments.vectors else None
        simcse = load_simcse(arguments)
        if arguments.add:
            simcse.load_index(folder)
            assert simcse.index
            if arguments.prompt_name not in (None, simcse.index.prompt_name):
                own = f"the prompt of {folder} is {simcse.index.prompt_name or 'none'}"
                raise UserError(f"--prompt-name {arguments.prompt_name}: {own}: leave it out")
            print(f"{simcse.add_to_index(sentences, vectors=vectors)} new sentences")
        else:
            simcse.build_index(sentences, prompt_name=arguments.prompt_name, vectors=vectors)
        assert simcse.index
        simcse.index.ids = ids | simcse.index.ids
        simcse.save_index(folder)
        print(f"{len(simcse.index)} sentences indexed in {folder}")


class Similarity:
    """Print the cosine similarity of two sentences, or of the pairs in a file."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_encoder(parser)
        parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="two sentences")
        parser.add_argument("--pairs", metavar="FILE", help="file of pairs instead: .csv, .tsv, .jsonl or .parquet")
        add_columns(parser)

    @staticmethod
    def run(arguments: argparse.Namespace) -> None:
        if len(arguments.sentences) != (0 if arguments.pairs else 2):
            raise UserError("give either two sentences or --pairs FILE")
        simcse = load_simcse(arguments)
        if arguments.sentences:
            print(f"{simcse.similarity(*arguments.sentences):.4f}")
            return
        rows = (row for row, _ in iterate_rows(arguments.pairs, arguments.columns, layout(arguments), first=2))
        for chunk in _chunks_with_progress(rows, "comparing"):
            first, second = (simcse.encode(list(side), normalize_to_unit=False) for side in zip(*chunk, strict=True))
            for pair, similarity in zip(chunk, cosine_similarity(first, second).tolist(), strict=True):
                sys.stdout.write(_json_line({"first": pair[0], "second": pair[1], "similarity": round(similarity, 6)}))


def _add_id(parser: argparse.ArgumentParser) -> None:
    text = "column of the ids that a search prints (default: the number of the row in its file, from 0)"
    parser.add_argument("--id", type=column, metavar="COLUMN", help=text)


def _read_with_ids(file: str, arguments: argparse.Namespace) -> tuple[Sequence[str], dict[str, int | str]]:
    """Return the sentences of a file, and the id of the first row of each."""
    sentences: Sequence[str] = ()
    ids: Sequence[Any] = ()
    if arguments.id is None:
        sentences = list(read_sentences(file, arguments))
        ids = range(len(sentences))
    elif arguments.column is None:
        raise UserError("--id: give the column of the sentences, too, by --column")
    else:
        rows = iterate_rows(file, [arguments.column], layout(arguments), label_column=arguments.id, labels_are_ids=True)
        sentences, ids = zip(*((sentence, own) for (sentence,), own in rows), strict=True)
    return sentences, dict(zip(reversed(sentences), reversed(ids), strict=True))


def _chunks_with_progress(
    rows: Iterable[T], description: str, total: int | None = None, shown: bool = True
) -> Iterator[list[T]]:
    """Yield chunks of CHUNK_SIZE rows, the last one shorter, and show how many rows are done."""
    rows = iter(rows)
    with counting_bar(shown=shown) as bar:
        task = bar.add_task(description, total=total)
        while chunk := list(itertools.islice(rows, CHUNK_SIZE)):
            yield chunk
            bar.advance(task, len(chunk))


def _json_line(row: dict[str, Any]) -> str:
    """Return a row as a line of JSON, with the line break."""
    return json.dumps(row, ensure_ascii=False) + "\n"
