"""Read text files line by line: UTF-8, gzipped or not."""

import gzip
import io
import itertools
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from simcse_pl.utils.errors import UserError, first_line

STANDARD_INPUT = "-"
_LONGEST_UNPACKED = 1 << 26  # bytes of a line: a few packed ones may be any number of them


@dataclass(frozen=True)
class Unreadable:
    """A row that cannot be split into cells, and why."""

    problem: str


def check_is_file(path: Path) -> None:
    """See that there is a file.

    Raises:
        UserError: a folder, or nothing.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder: give a file")
    if path.parts and path.parts[0] in ("http:", "https:"):
        raise UserError(f"{path} is an address: download it, and give the file")
    if not path.is_file():
        raise UserError(f"no file {path}")


def read_lines(path: Path, packed: bool = False) -> Iterator[str | Unreadable]:
    """Lines without their ends, decoded from UTF-8. Only \\n and \\r\\n end a line: U+0085 and its like are text."""
    try:
        with _opened(path, packed) as file:
            for number, raw in enumerate(file):
                raw = raw.removesuffix(b"\n").removesuffix(b"\r")
                try:
                    yield raw.decode("utf-8-sig" if number == 0 else "utf-8")
                except UnicodeDecodeError as error:
                    yield Unreadable(f"not UTF-8 (byte {error.object[error.start]:#04x})")
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error


@contextmanager
def _opened(path: Path, packed: bool) -> Iterator[Iterable[bytes]]:
    if str(path) == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with gzip.open(path) if packed else open(path, "rb") as file:
        yield _unpacked_lines(path, file) if packed else file


def _unpacked_lines(path: Path, file: io.BufferedIOBase) -> Iterator[bytes]:
    for number in itertools.count(1):
        line = file.readline(_LONGEST_UNPACKED + 1)
        if len(line) > _LONGEST_UNPACKED:
            raise UserError(f"{path}, line {number}: it unpacks to more than {_LONGEST_UNPACKED >> 20} MB")
        if not line:
            return
        yield line
