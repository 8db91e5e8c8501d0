"""A table that can be printed, and written as Markdown; lab/latex.py writes LaTeX."""

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
import rich.table
from rich.console import Console, Group
from rich.containers import Lines
from rich.text import Text

_MISSING = "–"
_BREAKS = re.compile(r"(\s+|(?<=[._])(?=[^\W\d_]))")  # between words, and after dots and underscores within names
_LONGEST = 20  # characters of a word that does not wrap
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
    caption: str = ""  # in LaTeX, if it is not the title
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
            justify: Literal["right", "left"] = "right" if self.numeric(heading) else "left"
            word = max(len(word) for text in (heading, *cells) for word in _BREAKS.split(text))
            widest = cells.str.len().max() if self.numeric(heading) else min(word, _LONGEST)  # numbers do not wrap
            table.add_column(_Cell(heading.translate(_CONTROLS)), justify=justify, overflow="fold", min_width=widest)
        for row in shown.itertuples(index=False):
            table.add_row(*map(_Cell, row))
        notes = [Text(note.translate(_CONTROLS), style="dim") for note in self.notes]
        return Group(Text(self.title.translate(_CONTROLS), style="italic"), table, *notes)

    def markdown(self) -> str:
        """Return the title, a pipe table, and the notes."""
        shown = self.shown().map(_markdown)
        alignment = ["right" if self.numeric(column) else "left" for column in shown]
        shown.columns = [_markdown(column) for column in shown]
        table = shown.to_markdown(index=False, disable_numparse=True, colalign=alignment)
        return "\n\n".join([f"**{self.title}**", table, *map(one_line, self.notes)]) + "\n"


class _Cell(Text):
    """A text that wraps between words, and after dots and underscores; rich breaks at spaces alone."""

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        wrapper = textwrap.TextWrapper(width)
        wrapper.wordsep_re = _BREAKS
        return Text(wrapper.fill(self.plain)).wrap(console, width, **options)


def one_line(text: str) -> str:
    """Return a text with single spaces, without line breaks."""
    return " ".join(text.split())


def _markdown(text: str) -> str:
    return one_line(text).replace("|", "\\|")
