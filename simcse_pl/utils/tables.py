"""A table that can be printed, and written as Markdown, CSV and LaTeX."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd
import rich.table
from rich.console import Group
from rich.text import Text

_MISSING = "–"
_NAMES = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater"}
_SIGNS = {"±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "×": r"$\times$", "–": "--", "…": r"\dots{}"}
_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"} | {c: f"\\text{name}{{}}" for c, name in _NAMES.items()} | _SIGNS
)
_STAR = "* "  # before a cell that is the best
_WIDE = 6  # columns; more do not fit on a page in LaTeX's usual size
_MINUS = re.compile(r"(?<![\w.-])-(?=[\d.])")
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(14, 32), *range(127, 160))}  # terminals obey them


@dataclass(frozen=True)
class Table:
    """A table of strings and numbers. A missing number is NaN, and shown as a dash."""

    name: str  # of its files, without a suffix
    title: str  # names the metric
    frame: pd.DataFrame  # columns of strings or numbers, in full precision
    decimals: int | Mapping[str, int] = 2  # shown, for all columns of numbers or by column
    notes: list[str] = field(default_factory=list)
    cells: pd.DataFrame | None = None  # what is shown, if it is not the frame with rounded numbers
    best: Literal["column", "row"] | None = None  # in bold in LaTeX: the highest number of each column or of each row

    def numeric(self, column: str) -> bool:
        """Return whether a column contains numbers."""
        return bool(pd.api.types.is_numeric_dtype(self.frame[column]))

    def shown(self) -> pd.DataFrame:
        """Return the cells as formatted strings."""
        if self.cells is not None:
            return self.cells
        decimals = dict.fromkeys(self.frame, self.decimals) if isinstance(self.decimals, int) else self.decimals
        columns = {
            name: [_MISSING if pd.isna(v) else f"{v:.{decimals[name]}f}" if self.numeric(name) else v for v in values]
            for name, values in self.frame.items()
        }
        return pd.DataFrame(columns, dtype=str)

    def printed(self) -> Group:
        """Return the table for the terminal, with the title and the notes in lines of its full width."""
        table = rich.table.Table()
        for heading, cells in (shown := self.shown().map(lambda cell: cell.translate(_CONTROLS))).items():
            widest = cells.str.len().max() if self.numeric(heading) else None  # numbers do not wrap
            justify: Literal["right", "left"] = "right" if self.numeric(heading) else "left"
            table.add_column(Text(heading.translate(_CONTROLS)), justify=justify, overflow="fold", min_width=widest)
        for row in shown.itertuples(index=False):
            table.add_row(*map(Text, row))
        notes = [Text(note.translate(_CONTROLS), style="dim") for note in self.notes]
        return Group(Text(self.title.translate(_CONTROLS), style="italic"), table, *notes)

    def markdown(self) -> str:
        """Return the title, a pipe table, and the notes."""
        shown = self.shown().map(_markdown)
        alignment = ["right" if self.numeric(column) else "left" for column in shown]
        shown.columns = [_markdown(column) for column in shown]
        table = shown.to_markdown(index=False, disable_numparse=True, colalign=alignment)
        return "\n\n".join([f"**{self.title}**", table, *map(_one_line, self.notes)]) + "\n"

    def csv(self) -> str:
        """Return the frame as CSV. Numbers have full precision, and missing ones are empty."""
        return str(self.frame.to_csv(index=False))

    def latex(self) -> str:
        """Return a table environment, which needs booktabs, below the notes as comments. The best cells are bold."""
        shown, bold = self.shown(), self._bold()
        shown = shown.map(lambda cell: _MINUS.sub("$-$", _latex(cell.removeprefix(_STAR))))
        shown = shown.where(~bold, "\\textbf{" + shown + "}")
        numeric = [self.numeric(column) for column in shown]
        columns = ["r" if number else "l" for number in numeric]
        if not any(numeric):  # columns of sentences wrap
            columns[1:] = [f"p{{{0.9 / len(numeric):.2f}\\linewidth}}"] * (len(numeric) - 1)
        shown.columns = [_latex(column) for column in shown]
        caption, label = _latex(self.title).replace(" x 100", r" $\times$ 100"), f"tab:{self.name}"
        options = {"hrules": True, "column_format": "".join(columns), "position_float": "centering"}
        table = shown.style.hide(axis="index").to_latex(caption=caption, label=label, **options)
        if len(shown.columns) > _WIDE:
            table = table.replace("\\centering\n", "\\centering\\footnotesize\\setlength{\\tabcolsep}{3pt}\n", 1)
        return "".join(f"% {_one_line(note).replace('*: ', 'bold: ')}\n" for note in self.notes) + str(table)

    def _bold(self) -> pd.DataFrame:
        """Return which cells are the best: those with a star, or the numbers that are highest as they are shown.

        A number that is alone in its column or row is not the best, and below ↓ the lowest is.
        """
        shown = self.shown()
        if self.best is None:
            return shown.map(lambda cell: cell.startswith(_STAR))
        numbers = shown[[name for name in shown if self.numeric(name)]].apply(pd.to_numeric, errors="coerce")
        numbers *= [-1 if name.endswith("↓") else 1 for name in numbers]
        if self.best == "row":
            numbers = numbers.T
        files = self.frame["file"] if "file" in self.frame else pd.Series(0, numbers.index)
        groups = numbers.groupby(files)
        best = numbers.eq(groups.transform("max")) & (groups.transform("count") > 1)
        return (best.T if self.best == "row" else best).reindex(columns=shown.columns, fill_value=False)

    def files(self) -> dict[str, bytes]:
        """Return the content of each file by its name."""
        forms = {"md": self.markdown(), "csv": self.csv(), "tex": self.latex()}
        return {f"{self.name}.{ending}": text.encode() for ending, text in forms.items()}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


def _latex(text: str) -> str:
    return _one_line(text).translate(_LATEX)
