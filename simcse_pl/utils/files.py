"""Reading files of JSON that may be damaged, and writing files so that nobody finds half of one."""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simcse_pl.utils.errors import FailureError, UserError, WriteError, first_line

_SURROGATE = "\\ud"  # the escapes of halves of characters begin so
_SAVING = ".saving-"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # what only writing meets


def cache_folder() -> Path:
    """Where the project keeps what it can make again, for this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simcse_pl"


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        UserError: it is no JSON, is nested beyond reading, or holds half a character (an escaped surrogate alone),
            which nothing could print or write.
    """
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text)
        if _SURROGATE in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged, or no JSON: {first_line(error)}") from error
    return value


def sha256_of(path: Path) -> str:
    """The checksum of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_write(folder: str | Path, last: str = "") -> Iterator[Path]:
    """A new folder to write files and folders into; each file is moved to its place in `folder` at the end, whole.

    Files that are there already are replaced, and others stay. Where the block is left by an exception, `folder` stays
    as it was.

    Args:
        folder: where the files belong; made if it is not there.
        last: the name of the file that is moved last, whose being there says that the others are.

    Raises:
        WriteError: the system does not let a file be written, in the block or after it.
    """
    folder = Path(folder)
    with reraise_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=_SAVING) as name:  # beside them: moving is renaming there
            new = Path(name)
            with reraise_write_errors(new):
                yield new
            files = sorted(path for path in new.rglob("*") if path.is_file())
            mode = 0o666 & ~_umask()
            for file in files:
                file.chmod(mode)  # safetensors writes files that others cannot read
                (folder / file.relative_to(new)).parent.mkdir(parents=True, exist_ok=True)
                with file.open("rb+") as written:
                    os.fsync(written)  # a machine that goes down must not keep the name without the content
            for file in sorted(files, key=lambda path: path.name == last):  # all that can fail is behind us
                os.replace(file, folder / file.relative_to(new))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for files that nobody needs after the block.

    Raises:
        WriteError: the system does not let a file be written there.
    """
    with reraise_write_errors(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextmanager
def reraise_write_errors(folder: Path) -> Iterator[None]:
    """Raise WriteError in the place of whatever says that the system does not let something be written to a folder."""
    try:
        yield
    except Exception as error:
        refused = None if isinstance(error, (UserError, FailureError)) else _refused(error, folder)
        if refused is None:
            raise
        raise refused from error


def _refused(error: BaseException | None, folder: Path) -> WriteError | None:
    """What the system refused to have written to a folder; None where it was something else that went wrong."""
    while error is not None:
        number, place = _number_and_place(error)
        if place is None and number in _NO_ROOM:
            # What is written in Rust makes its file late: then the one that is there is another.
            is_new = folder.name.startswith(_SAVING) and isinstance(error, OSError)
            place = _only_file(folder) if is_new else folder
        if place and (place.is_relative_to(folder) or folder.is_relative_to(place)):
            final = Path(*(part for part in place.parts if not part.startswith(_SAVING)))
            return WriteError(final, os.strerror(number))
        error = error.__context__  # torch's writer has an error of its own, which says nothing
    return None


def _only_file(folder: Path) -> Path:
    """The file that was being written, where a new folder holds one alone; else the folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return files[0] if len(files) == 1 else folder


def _number_and_place(error: BaseException) -> tuple[int, Path | None]:
    """The system's number of an error, 0 where it has none, and the file, as Python or what is written in Rust say."""
    if isinstance(error, OSError) and error.errno:
        place = error.filename2 or error.filename
        return error.errno, Path(place) if isinstance(place, str) else None
    said = re.search(r"\(os error (\d+)\)", str(error))  # by safetensors and tokenizers
    return int(said[1]) if said else 0, None


def remove_half_written(*folders: Path) -> None:
    """Remove what processes that were killed in `atomic_write` have left in folders that nobody writes to now."""
    for left in (path for folder in folders for path in folder.glob(f"{_SAVING}*")):
        shutil.rmtree(left)
