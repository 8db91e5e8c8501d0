"""Sources of rows: local files, several of them, and data sets on the Hugging Face Hub."""

import glob
import hashlib
import itertools
import logging
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from simcse_pl.data.formats import DETECTED, FORMATS, TEXT, Layout, OpenedTable, Records, file_ending, open_table
from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import cached, check_is_file, sha256_of, write_text
from simcse_pl.utils.private import fingerprint_of

log = logging.getLogger(__name__)

Source = str | Path | Sequence[str]
HUB = "hf://datasets/"
# of save_to_disk and map, and what describes the data
_NO_ROWS = re.compile(r"(dataset_dict|dataset_info|state)\.json|cache-.*\.arrow|(?i:readme|licen[cs]e).*")
_RECENT = 2.0  # seconds in which a second change may leave the times of a file as they are


def open_source(
    source: Source, layout: Layout = DETECTED, split: str = "train", columns: Iterable[int | str | None] = ()
) -> OpenedTable:
    """Open files or a data set, and log what was found out about the layout of text and tables.

    Args:
        source: a file (see `formats.open_table`), a pattern such as `shards/*.parquet`, a folder of files, or a list of
            these, all with the same columns; `hf://datasets/OWNER/NAME/FILE` for a file of a data set on the Hugging
            Face Hub; or `hf://datasets/OWNER/NAME` or `hf://datasets/OWNER/NAME:SUBSET` for the data set itself.
        layout: how the files are written.
        split: the split of a data set on the Hub.
        columns: the columns that are chosen; if one is a name, a table has a header, unless `layout` says otherwise.
    """
    found = files_of(source)
    if isinstance(found, str):
        from simcse_pl.data.hub_datasets import load_hub_dataset, table_of

        return table_of(load_hub_dataset(found, split).flatten(), str(source))  # the field b of a is the column a.b
    if layout.header is None and any(isinstance(column, str) for column in columns):
        layout = replace(layout, header=True)
    first, *others = found
    table = open_table(first, layout)
    if table.layout != TEXT and FORMATS.get(file_ending(first)) not in ("json", "parquet"):
        log.info("%s: %s%s", first, table.layout, f", in {len(found)} files" if others else "")
    if not others:
        return table

    records = itertools.chain(table.records, _records_of(others, layout, (table.width, table.header)))
    return OpenedTable(f"{len(found)} files", records, table.width, table.header, table.layout)


def _records_of(paths: Sequence[Path], layout: Layout, columns: tuple[int, list[str] | None]) -> Records:
    """Yield the rows of several files; raise UserError if one has other columns than the first file."""
    for path in paths:
        table = open_table(path, layout)
        if (table.width, table.header) != columns:
            width, names = columns
            first = f"column names {', '.join(names)}" if names else f"{width} column{'s' * (width > 1)} without names"
            raise UserError(f"{path} has {table.layout}, but the first file has {first}")
        yield from ((f"{path.name}, {location}", cells) for location, cells in table.records)


def content_hash(source: Source, split: str = "train") -> str:
    """Return a string that changes with the content: of files, the SHA-256; of a data set on the Hub, its fingerprint.

    The SHA-256 of a file is computed once and kept in the user's cache. It is computed again if the path, the size, the
    inode or a time of the file has changed.
    """
    found = files_of(source)
    if isinstance(found, str):
        from simcse_pl.data.hub_datasets import load_hub_dataset

        return fingerprint_of(load_hub_dataset(found, split))
    for path in found:
        check_is_file(path)
    checksums = [_checksum(path) for path in found]
    return checksums[0] if len(found) == 1 else hashlib.sha256("".join(checksums).encode()).hexdigest()


def _checksum(path: Path) -> str:
    status = path.stat()
    if time.time() - max(status.st_mtime, status.st_ctime) < _RECENT:
        return sha256_of(path)
    key = str(path.resolve()), status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
    file = "sha256"
    return (cached("checksums", key, file, lambda new: write_text(new / file, sha256_of(path))) / file).read_text()


def files_of(source: Source) -> list[Path] | str:
    """Return the paths of the files, or the name of a data set on the Hub."""
    if not source or not str(source).strip():  # an empty variable of the shell; a path would be the current folder
        raise UserError("the name of a file is empty: is a variable of the shell not set?")
    if not isinstance(source, str | Path):
        several = [files_of(each) for each in source]
        if any(isinstance(files, str) for files in several):
            raise UserError(f"{', '.join(source)}: a list of sources is a list of files")
        return [path for files in several if not isinstance(files, str) for path in files]
    name = str(source)
    if name.startswith(HUB):
        owner, repository, file = [*name.removeprefix(HUB).split("/", 2), "", ""][:3]
        repository = f"{owner}/{repository}"
        return [hub.download(repository, file, repo_type="dataset")] if file else repository
    path = Path(name)
    if path.is_dir():
        within = (file for file in sorted(path.iterdir()) if not _NO_ROWS.fullmatch(file.name))
        files = [file for file in within if file_ending(file) in FORMATS]
    elif glob.has_magic(name) and not path.exists():
        files = [Path(file) for file in sorted(glob.glob(name, recursive=True))]
    else:
        return [path]
    if not files:
        raise UserError(f"no files {name} (of the folders in a folder, give one)")
    return files
