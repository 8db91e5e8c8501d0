"""What the commands share: which encoder, and lines of JSON."""

import argparse
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from simcse_pl.inference.simcse import SimCSE
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.progress import counter

T = TypeVar("T")

STANDARD = "-"  # standard input, or standard output
AT_A_TIME = 4096  # sentences: like lengths among them are encoded together


def add_encoder(parser: argparse.ArgumentParser, computes: bool = True, nargs: str | None = None) -> None:
    """The arguments that say which encoder and, for a command that encodes with it, how it computes.

    Args:
        parser: takes them.
        computes: whether the command encodes.
        nargs: argparse's, for several encoders.
    """
    parser.add_argument(
        "encoder",
        nargs=nargs,
        metavar="ENCODER",
        help="the folder `encoder` of a training run, a checkpoint, a folder of sentence-transformers, a hub name, "
        "package:NAME, or word vectors",
    )
    parser.add_argument("--pooling", help="of a checkpoint that does not say how it is pooled")
    parser.add_argument("--max-length", type=int, metavar="N", help="tokens read of a sentence")
    if not computes:
        return
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...; a GPU where there is one")
    parser.add_argument("--batch-size", type=int, metavar="N", help="sentences that are encoded at once")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16: faster where the hardware has it")


def encoder_of(arguments: argparse.Namespace) -> SimCSE:
    """The encoder that was asked for."""
    names = ("pooling", "max_length", "device", "batch_size", "bf16")
    return SimCSE(arguments.encoder, **{name: getattr(arguments, name) for name in names})


def add_column(parser: argparse.ArgumentParser) -> None:
    """The argument that says which column of a file."""
    parser.add_argument(
        "--column",
        type=lambda text: int(text) if text.isdecimal() else text,
        help="of a csv, tsv, jsonl or parquet file that has several: its name, or its position from 0",
    )


def check_column(column: int | str | None, sources: Iterable[str]) -> None:
    """Refuse a column where no file is read that it could be of.

    Args:
        column: that was given; None for none.
        sources: files, or folders of indexes.

    Raises:
        UserError: all are folders.
    """
    if column is not None and all(Path(source).is_dir() for source in sources):
        raise UserError(f"--column {column}: the folder of an index has no columns")


def in_parts(rows: Iterable[T], what: str) -> Iterator[list[T]]:
    """Some thousands of rows at a time, with a count of them on standard error while they are worked on."""
    rows = iter(rows)
    with counter(what) as progress:
        task = progress.add_task(what, total=None)
        while part := list(itertools.islice(rows, AT_A_TIME)):
            yield part
            progress.advance(task, len(part))


def json_line(row: dict[str, Any]) -> str:
    """A row as a line of JSON, with its end."""
    return json.dumps(row, ensure_ascii=False) + "\n"
