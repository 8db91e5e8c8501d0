"""Writing files so that nobody finds half of one."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """Where the project keeps what it can make again, for this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simcse_pl"


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
