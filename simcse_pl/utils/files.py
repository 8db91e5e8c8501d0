"""Read text and JSON files, and write files atomically."""

import gzip
import hashlib
import io
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout
from pydantic_core import to_jsonable_python

from simcse_pl.utils.errors import UserError, WriteError, did_you_mean, exception_chain, first_line, reraise_as
from simcse_pl.utils.processes import is_first_process

STANDARD = "-"  # input or output
without_nan = partial(to_jsonable_python, inf_nan_mode="null")  # plain values with None for NaN and infinity
_WESTERN = "cp1252"  # the most common of several encodings of the same text
_ENCODINGS = [
    *("utf_16", "gb18030", "big5", "cp932", "euc_jp", "cp949", "koi8_r", "cp874"),
    *("cp1250", "cp1251", _WESTERN, "cp1253", "cp1254", "cp1256"),
]
_INSPECTED, _LONGEST = 100, 2**28  # lines; bytes of a line
_SAMPLE = 100_000  # bytes, to guess an encoding
_ENCODING_OPTION = "data.encoding, --encoding, or {file: ..., encoding: ...} for validation and test"
_SAVING, _SAVED, _STALE = ".saving-", ".saved-", ".stale"
_NO_ROWS = {
    b"version https://git-": "is a pointer of Git LFS in place of the file: run `git lfs pull`",
    b"PK\3\4": "is a zip archive or an Excel sheet: unpack it, or save it as .csv",
}


def cache_folder() -> Path:
    """Return the user's folder for files that the project can create again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simcse_pl"


def cached(kind: str, key: Any, last: str, write: Callable[[Path], None]) -> Path:
    """Return the folder of the user's cache for a key, everything that determines its content.

    If it has no file `last`, `write` first writes its files into a new folder. If several processes start together, one
    writes and the others wait. WriteError is raised if the system rejects a write.
    """
    folder = cache_folder() / kind / hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    if (folder / last).exists():  # it is complete, and may be read-only
        return folder
    with reraise_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            remove_half_written(folder)
            if not (folder / last).exists():
                with atomic_write(folder, last=last) as new:
                    write(new)
    return folder


def cached_rows(rows: Iterable[str | Sequence[Any]]) -> Path:
    """Return a file of sentences, or of rows of cells, in the user's cache.

    Columns have the names that rows have as dictionaries, or else their positions as names.
    """
    text, name = "".join(json.dumps(_named_cells(row), default=_plain_cell) + "\n" for row in rows), "rows.jsonl"
    return cached("rows", text, name, lambda new: write_text(new / name, text)) / name


def _named_cells(row: Any) -> dict[Any, Any]:
    if isinstance(row, Mapping):
        return dict(row)
    if not isinstance(row, Iterable):
        raise UserError(f"rows: {row!r} is a {type(row).__name__}: give a text, a list of cells or a dictionary")
    return dict(enumerate([row] if isinstance(row, str) else row))


def _plain_cell(cell: Any) -> Any:
    """Return the number or list of a scalar or array of NumPy or PyTorch; raise UserError for another object."""
    if not hasattr(cell, "tolist"):
        raise UserError(f"rows: the cell {cell!r} is a {type(cell).__name__}: give a text or a number")
    return cell.tolist()


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raise UserError if it is not valid."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON: {first_line(error)}") from error


def write_json(path: Path, value: Any) -> None:
    """Write plain values to a JSON file atomically, with null for NaN and infinity."""
    write_text(path, json.dumps(without_nan(value), indent=2, ensure_ascii=False) + "\n")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 checksum of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_write(
    folder: str | Path, last: str = "", stale: Collection[str] = (), what: Path | None = None
) -> Iterator[Path]:
    """Yield a new folder to write files into, and move them to `folder` at the end.

    Files of the same name are replaced; other files stay. If the block raises an exception, `folder` does not change.

    Args:
        folder: where the files end up.
        last: the file that is moved last, so that its presence means that the others are complete.
        stale: names of files to remove, if they are not written and there is a `last` one.
        what: what the message of WriteError names; None for the folder.

    Raises:
        WriteError: the system rejects a write.
    """
    folder = Path(folder)
    with reraise_write_errors(folder, what):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=_SAVING) as name:  # on the same disk
            new = Path(name)
            yield new
            files = sorted(path for path in new.rglob("*") if path.is_file())
            os.umask(mask := os.umask(0o077))  # there is no other way to read it
            for file in files:
                file.chmod(0o666 & ~mask)  # safetensors writes files that only the owner can read
                with file.open("rb+") as written:
                    os.fsync(written)  # otherwise a power failure can leave an empty file
            if not last:
                for file in files:
                    target = folder / file.relative_to(new)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(file, target)
                return
            finish_write(folder)
            (new / _STALE).write_text("\n".join({*stale}.difference(str(file.relative_to(new)) for file in files)))
            new.rename(folder / new.name.replace(_SAVING, _SAVED))  # from here on, a killed process has written
            finish_write(folder, last)


def finish_write(folder: str | Path, last: str = "") -> None:
    """Move the files of an `atomic_write` to their folder, `last` at the end. Readers do so after a killed writer."""
    folder = Path(folder)
    for new in folder.glob(f"{_SAVED}*"):
        with suppress(FileNotFoundError):  # here and below: another process does the same
            for name in (new / _STALE).read_text().splitlines():
                (folder / Path(name).name).unlink(missing_ok=True)
        files = [path for path in new.rglob("*") if path.is_file() and path.name != _STALE]
        for file in sorted(files, key=lambda path: path.name == last):
            target = folder / file.relative_to(new)
            if not target.parent.resolve().is_relative_to(folder.resolve()):  # by a link in a folder of others
                raise UserError(f"{target} leads out of its folder: remove {new}")
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                os.replace(file, target)
        shutil.rmtree(new, ignore_errors=True)


@contextmanager
def atomic_open(path: Path, mode: str = "w", newline: str | None = None) -> Iterator[IO[Any]]:
    """Yield a new file, UTF-8 unless it is binary, and move it to `path` at the end, as `atomic_write` does."""
    how: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": newline}
    with atomic_write(path.parent, what=path) as new, (new / path.name).open(mode, **how) as file:
        yield file


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically; raise WriteError if the system rejects it."""
    with atomic_open(path) as file:
        file.write(text)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder, which is removed at the end; raise WriteError, which names its place, if the disk is full."""
    with reraise_write_errors(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextmanager
def reraise_write_errors(folder: Path, what: Path | None = None) -> Iterator[None]:
    """Raise WriteError, which names `what` or else the folder, in place of an error of the system."""
    try:
        yield
    except Exception as error:
        causes = list(exception_chain(error))  # torch's own error gives no reason
        system = next((cause for cause in causes if isinstance(cause, OSError)), None)
        in_rust = "(os error " in str(error)  # of safetensors and tokenizers
        if isinstance(error, UserError | WriteError) or not (system or in_rust):
            raise
        final = Path(*(part for part in (what or folder).parts if not part.startswith(_SAVING)))  # if nested
        raise WriteError(f"cannot write {final}: {(system and system.strerror) or first_line(error)}") from error


@contextmanager
def locked(folder: Path, *parts: str) -> Iterator[None]:
    """Within the block, the first process alone writes to a folder and those in it.

    They have no files that a killed process has left half-written. The system releases the lock of a killed process.

    Raises:
        UserError: another command writes to the folder.
    """
    lock = FileLock(folder / ".lock")
    if is_first_process():
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UserError(
                f"{folder}: another command is writing to it: wait for its end, or choose another folder"
            ) from None
        remove_half_written(folder, *(folder / part for part in parts))
    try:
        yield
    finally:
        lock.release()


def remove_half_written(*folders: Path) -> None:
    """Remove what killed processes left of `atomic_write`. Nothing else may write there."""
    for left in (path for folder in folders for path in folder.glob(f"{_SAVING}*")):
        shutil.rmtree(left)


def check_is_file(path: Path) -> None:
    """Raise UserError unless the path is a file, and no stand-in for it or pack of files."""
    if not path.is_file():
        raise UserError(f"no file {path}{similar_name(path)}")
    with reraise_as(f"{path} cannot be read"), path.open("rb") as file:
        start = file.read(20)
    if problem := next((problem for begin, problem in _NO_ROWS.items() if start.startswith(begin)), None):
        raise UserError(f"{path} {problem}")


def similar_name(path: Path) -> str:
    """Return the nearest names in the path's folder as the end of an error message; empty if none is near."""
    folder = path.parent
    return did_you_mean(path.name, [other.name for other in folder.iterdir()]) if folder.is_dir() else ""


def read_lines(path: Path, encoding: str | None = None) -> Iterator[str]:
    r"""Yield the lines of a file, gzipped if its name ends in .gz, without their ends. The path `-` is standard input.

    Only \n and \r\n end a line, and \r if the first lines have as many of them; U+0085 and U+2028 are text.

    Raises:
        UserError: the file does not exist or cannot be read, or a line is too long or is not in the encoding, by
            default UTF-8. The message then names the most likely encoding.
    """
    if str(path) != STANDARD:
        check_is_file(path)
    with reraise_as(f"{path} cannot be read"), _open(path) as file:
        reader = file if encoding is None else io.TextIOWrapper(file, encoding, newline="\n")
        lines = (line.removesuffix("\n").removesuffix("\r") for line in _decoded(path, reader))
        head = list(itertools.islice(lines, 1 if str(path) == STANDARD else _INSPECTED))
        old_mac = sum(line.count("\r") for line in head) >= len(head)
        for line in itertools.chain(head, lines):
            yield from line.split("\r") if old_mac else [line]


def _decoded(path: Path, reader: IO[Any]) -> Iterator[str]:
    """Yield lines of UTF-8, or of the reader's own encoding."""
    for number, line in enumerate(iter(partial(reader.readline, _LONGEST), reader.readline(0)), 1):
        if len(line) == _LONGEST and (str(path) == STANDARD or path.suffix == ".gz"):  # a few kB would fill the memory
            raise UserError(f"{path}, line {number}: it has over {_LONGEST // 10**6} MB: give shorter lines")
        if number == 1 and isinstance(line, bytes) and 3 * line.count(0) > len(line):  # every second byte of English
            likely = "utf_32" if 2 * line.count(0) > len(line) + 2 else "utf_16_le"  # three of four bytes
            raise UserError(f"{path}: not UTF-8 (NUL bytes); if it is {likely}, say so by {_ENCODING_OPTION}")
        try:
            text = line.decode() if isinstance(line, bytes) else line
        except UnicodeDecodeError as error:
            byte = f"byte {error.object[error.start]:#04x}"
            raise UserError(f"{path}, line {number}: not UTF-8 ({byte}){_likely_encoding(path)}") from error
        yield text.removeprefix("\ufeff") if number == 1 else text


def _likely_encoding(path: Path) -> str:
    from charset_normalizer import from_bytes  # only for this message

    with _open(path) as file:
        start = b"" if str(path) == STANDARD else file.read(_SAMPLE)
    if not (matches := from_bytes(start, cp_isolation=_ENCODINGS)):  # among all encodings, rare ones would win
        return ""
    best = min(matches, key=lambda match: (match.chaos, -match.coherence, _WESTERN not in match.could_be_from_charset))
    likely = _WESTERN if _WESTERN in best.could_be_from_charset else best.encoding
    return f"; if it is {likely}, say so by {_ENCODING_OPTION}"


def _open(path: Path) -> AbstractContextManager[Any]:
    if str(path) == STANDARD:
        if sys.stdin.isatty():
            print("reading sentences from the terminal, one in a line; Ctrl-D ends", file=sys.stderr)
        return nullcontext(sys.stdin.buffer)
    return gzip.open(path) if path.suffix.lower() == ".gz" else open(path, "rb")
