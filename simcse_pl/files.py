"""Reading files of JSON that may be damaged, and writing files so that nobody finds half of one."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simcse_pl.errors import UserError, one_line


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
        raise UserError(f"{path} is damaged, or no JSON: {one_line(error)}") from error
    return value


_SURROGATE = "\\ud"  # the escapes of halves of characters begin so
_SAVING = ".saving-"


@contextmanager
def written_whole(folder: str | Path, last: str = "") -> Iterator[Path]:
    """A new folder to write files and folders into; each file is moved to its place in `folder` at the end, whole.

    Files that are there already are replaced, and others stay. Where the block is left by an exception, `folder` stays
    as it was.

    Args:
        folder: where the files belong; made if it is not there.
        last: the name of the file that is moved last, whose being there says that the others are.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=_SAVING) as name:  # beside them: moving is renaming there
        new = Path(name)
        yield new
        files = [path for path in new.rglob("*") if path.is_file()]
        for file in sorted(files, key=lambda path: (path.name == last, path)):
            with file.open("rb+") as written:
                os.fsync(written)  # a machine that goes down must not keep the name without the content
            place = folder / file.relative_to(new)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, place)


def remove_half_written(*folders: Path) -> None:
    """Remove what processes that were killed in `written_whole` have left in folders that nobody writes to now."""
    for left in (path for folder in folders for path in folder.glob(f"{_SAVING}*")):
        shutil.rmtree(left)
