"""Functions shared by the commands that convert published corpora to training files."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import Unreadable, atomic_write, check_is_file
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import progress_bar

USED = "used"
NO_WORDS = "a sentence without words"
INVALID = "invalid"
REPEATED = "the same pair again"

Parsed = Sequence[str] | str | Unreadable  # the cells of a row, the reason not to use it, or why it cannot be read


class ConversionStats(Counter[str]):
    """Counts of input rows by outcome (used, invalid, no label, ...)."""

    def table(self, title: str) -> Table:
        """Return a table of the outcomes below the number of rows read."""
        counts = {"rows read": self.total(), **self}
        return Table("rows", title, pd.DataFrame({"": list(counts), "rows": list(counts.values())}), decimals=0)

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in self.items())
        return f"{self.total()} rows read: {outcomes}" if self else "no rows read"


def check_paths(files: Sequence[Path], out: Path) -> None:
    """Raise UserError unless the input files exist and the output is a new or existing .csv file other than these."""
    for file in files:
        check_is_file(file)
        if out.exists() and out.samefile(file):
            raise UserError(f"{out} is an input file: give another name for the output")
    if out.is_dir():
        raise UserError(f"{out} is a folder: name a file to write")
    if out.suffix != ".csv":
        raise UserError(f"{out}: the output file comes last, and its name should end in .csv")


def usable_rows(
    file: Path, records: Iterable[tuple[str, Parsed]], on_invalid_row: str, stats: ConversionStats
) -> Iterator[list[str]]:
    """Yield the cells of each row whose cells all have words, with single spaces between words.

    Args:
        file: the file that has the rows.
        records: the place (`line 7`) and the content of each row.
        on_invalid_row: `error`, or `drop` to skip rows that cannot be read.
        stats: counts the rows that are not yielded.

    Raises:
        UserError: a row cannot be read; the message has the file and the line.
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with progress_bar(*columns) as bar:
        for place, row in bar.track(records, description=f"reading {file.name}"):
            if isinstance(row, str):
                stats[row] += 1
            elif isinstance(row, Unreadable):
                if on_invalid_row != "drop":
                    raise UserError(f"{file}, {place}: {row.problem} (--on-invalid-row drop skips such rows)")
                stats[INVALID] += 1
            elif all(map(has_words, cells := [" ".join(cell.split()) for cell in row])):
                yield cells
            else:
                stats[NO_WORDS] += 1


def has_words(sentence: str) -> bool:
    """Return whether a sentence has a letter or digit, and is not the `n/a` of annotators."""
    return any(map(str.isalnum, sentence)) and sentence.lower() != "n/a"


def write_csv(out: Path, columns: Sequence[str], rows: Iterable[Sequence[str]], stats: ConversionStats) -> int:
    """Write a header and rows to a file atomically, and return the number of rows.

    Raises:
        UserError: there are no rows, or from `rows`.
        WriteError: the file cannot be written.
    """
    written = 0
    with atomic_write(out.parent) as folder, open(folder / out.name, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow(row)
            written += 1
        if not written:
            raise UserError(f"nothing to write to {out} ({stats})")
    return written
