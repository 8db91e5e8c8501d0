"""Functions shared by the commands that convert published corpora to training files."""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_open, check_is_file
from simcse_pl.utils.tables import Table

USED = "used"
NO_WORDS = "a sentence without words"
INVALID = "cannot be read"
REPEATED = "the same pair again"


class ConversionStats(Counter[str]):
    """Counts of input rows or sentences by outcome (used, cannot be read, no label, ...)."""

    def table(self, title: str) -> Table:
        """Return a table of the outcomes below the number read."""
        counts = {"read": self.total(), **self}
        return Table("rows", title, pd.DataFrame({"": list(counts), "number": list(counts.values())}), decimals=0)

    def __str__(self) -> str:
        return f"{self.total()} read: {', '.join(f'{count} {outcome}' for outcome, count in self.items())}"


def check_paths(files: Sequence[Path], out: Path) -> None:
    """Raise UserError unless the input files exist and the output is a .csv file other than these."""
    for file in files:
        check_is_file(file)
        if out.exists() and out.samefile(file):
            raise UserError(f"{out} is an input file: give another name for the output")
    if out.suffix != ".csv":
        raise UserError(f"{out}: the output file comes last, and its name should end in .csv")


def checked_row(row: Sequence[str] | str, stats: ConversionStats) -> list[str] | None:
    """Return the cells of a row with single spaces between words; None, which `stats` counts, if it is not used."""
    cells = [] if isinstance(row, str) else [" ".join(cell.split()) for cell in row]
    if cells and all(any(map(str.isalnum, cell)) and cell.lower() != "n/a" for cell in cells):  # of annotators
        return cells
    stats[row if isinstance(row, str) else NO_WORDS] += 1
    return None


def write_csv(out: Path, columns: Sequence[str], rows: Iterable[Sequence[str]], stats: ConversionStats) -> int:
    """Write a header and rows to a file atomically, and return the number of rows."""
    written = 0
    with atomic_open(out, newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([str(cell).replace("\r", " ") for cell in row])  # csv does not quote it
            written += 1
        if not written:
            raise UserError(f"nothing to write to {out} ({stats})")
    return written
