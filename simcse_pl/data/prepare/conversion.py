"""What the commands that make training files of published corpora share: sound rows, an account of them, the file."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pandas as pd
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.progress import progress_bar
from simcse_pl.utils.tables import Table
from simcse_pl.utils.text_files import Unreadable, check_is_file

T = TypeVar("T")

NO_WORDS = "a sentence without words"
BAD_ROW = "damaged rows"


class Account:
    """What became of the rows that were read: each of them has one fate.

    Args:
        files: that are read.
        fates: all there are but `BAD_ROW`, in the order in which the table shows them.
    """

    def __init__(self, files: Sequence[Path], fates: Sequence[str]) -> None:
        self.files = list(dict.fromkeys(files))
        self.read: Counter[Path] = Counter()
        self.fates: dict[str, Counter[Path]] = {fate: Counter() for fate in (BAD_ROW, *fates)}

    def add(self, file: Path, fate: str, rows: int = 1) -> None:
        """Note what became of a row of `file`, or of several."""
        self.fates[fate][file] += rows

    def table(self, title: str) -> Table:
        """A column for every file and, of several, one for all; the lines below the first add up to it."""
        lines = {"rows read": self.read, **self.fates}
        frame = pd.DataFrame({"": list(lines)})
        for file in self.files:
            frame[_short_name(file, self.files)] = [counts[file] for counts in lines.values()]
        if len(self.files) > 1:
            frame["all"] = [counts.total() for counts in lines.values()]
        return Table("rows", title, frame, decimals=0)

    def __str__(self) -> str:
        told = (f"{counts.total()} {fate}" for fate, counts in self.fates.items() if counts.total())
        return f"{self.read.total()} rows read: {', '.join(told)}" if self.read.total() else "no rows read"


def _short_name(file: Path, files: Sequence[Path]) -> str:
    """A file's name, after as many of its folders as tell it from the others; ANLI's three are all train.jsonl."""
    lengths = range(1, len(file.parts) + 1)
    tells_apart = (n for n in lengths if sum(file.parts[-n:] == other.parts[-n:] for other in files) == 1)
    return "/".join(file.parts[-next(tells_apart, 0) :])


def check_paths(files: Sequence[Path], out: Path) -> None:
    """Refuse, before anything is read, what could not be read or written, or would overwrite what is read.

    Raises:
        UserError: a file that is not there; an output that is one of them, is a folder or does not end in .csv.
    """
    for file in files:
        check_is_file(file)
        if out.exists() and out.samefile(file):
            raise UserError(f"{out} would be written over itself: give another name for the file to write")
    if out.is_dir():
        raise UserError(f"{out} is a folder: name a file to write")
    if out.suffix != ".csv":
        raise UserError(f"{out}: the file to write comes last, and its name should end in .csv")


def sound_rows(
    file: Path, records: Iterable[tuple[str, T | Unreadable]], on_invalid_row: str, account: Account
) -> Iterator[T]:
    """The rows that can be read, counted in `account`, with a progress bar on standard error.

    Args:
        file: that they stand in.
        records: the place of each (`line 7`) and the row.
        on_invalid_row: `error`, or `drop` to leave out those that cannot be read.
        account: gets the number of rows read, and of those left out.

    Raises:
        UserError: a row that cannot be read; it names the file and the line.
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with progress_bar(*columns) as bar:
        for place, row in bar.track(records, description=f"reading {file.name}"):
            account.read[file] += 1
            if not isinstance(row, Unreadable):
                yield row
            elif on_invalid_row == "drop":
                account.add(file, BAD_ROW)
            else:
                raise UserError(f"{file}, {place}: {row.problem} (--on-invalid-row drop leaves such rows out)")


def clean(sentence: str) -> str:
    """A sentence on one line, every run of white space one blank."""
    return " ".join(sentence.split())


def has_words(sentence: str) -> bool:
    """Whether anything is said: a letter or digit at least, and not the `n/a` that annotators leave."""
    return any(map(str.isalnum, sentence)) and sentence.lower() != "n/a"


def write_csv(out: Path, columns: Sequence[str], rows: Iterable[Sequence[str]], account: Account) -> int:
    """Write rows below a header, and return how many; `out` appears when all of it is written.

    Raises:
        UserError: there are no rows, or whatever making them raises.
        WriteError: the system does not let `out` be written.
    """
    written = 0
    with atomic_write(out.parent) as folder, open(folder / out.name, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow(row)
            written += 1
        if not written:
            raise UserError(f"nothing to write to {out} ({account})")
    return written
