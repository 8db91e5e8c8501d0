"""Read UTF-8 text files line by line, gzipped or not."""

import gzip
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from simcse_pl.utils.errors import UserError, reraise_as

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Unreadable:
    """A row that cannot be split into cells, with the reason."""

    problem: str


def check_is_file(path: Path) -> None:
    """Raise UserError unless the path is a file."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: give a file")
    if path.parts and path.parts[0] in ("http:", "https:"):
        raise UserError(f"{path} is an address: download it, and give the file")
    if not path.is_file():
        raise UserError(f"no file {path}")


def read_lines(path: Path) -> Iterator[str | Unreadable]:
    r"""Yield the lines of a file, gzipped if its name ends in .gz, without their ends. The path `-` is standard input.

    Only \n and \r\n end a line; U+0085 and U+2028 are text. A file that cannot be read raises UserError.
    """
    with reraise_as(f"{path} cannot be read"), _open(path) as file:
        for number, raw in enumerate(file):
            raw = raw.removesuffix(b"\n").removesuffix(b"\r")
            try:
                yield raw.decode("utf-8-sig" if number == 0 else "utf-8")
            except UnicodeDecodeError as error:
                yield Unreadable(f"not UTF-8 (byte {error.object[error.start]:#04x})")


def _open(path: Path) -> AbstractContextManager[Iterable[bytes]]:
    if str(path) == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    return gzip.open(path) if path.suffix.lower() == ".gz" else open(path, "rb")
