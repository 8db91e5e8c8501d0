"""Tables, text and progress bars in the terminal. Bars are on standard error, and removed at the end."""

import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

import rich.table
from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

T = TypeVar("T")

_HEADING_WIDTH = 12  # characters


class _HeadingWrapper(textwrap.TextWrapper):
    """Wraps headings at spaces, and names of options and metrics after dots, slashes and underscores."""

    wordsep_simple_re = re.compile(r"(\s+)|(?<=[./])(?=\w)|(?<=\w_)(?=\w)")


def text_table(
    title: str, columns: Mapping[str, Sequence[str]], numeric: Collection[str] = (), notes: Sequence[str] = ()
) -> rich.table.Table:
    """Return a table of text.

    Args:
        columns: the cells of each column by its heading.
        numeric: the headings of the columns of numbers. They are on the right, and only their headings wrap.
            The other headings wrap if they are longer than the cells.
        notes: footnotes.
    """
    caption = Text("\n".join(notes), style="dim") if notes else None
    table = rich.table.Table(title=Text(title), caption=caption, caption_justify="left")
    for heading, cells in columns.items():
        is_number, widest = heading in numeric, max(map(len, cells), default=0)
        width = _HEADING_WIDTH if is_number else max(_HEADING_WIDTH, widest)
        wrapped = Text(_HeadingWrapper(width, break_long_words=False, break_on_hyphens=False).fill(heading))
        justify: Literal["right", "left"] = "right" if is_number else "left"
        table.add_column(wrapped, justify=justify, overflow="fold", min_width=widest if is_number else None)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def is_terminal(console: Console) -> bool:
    """Return whether a console writes to a terminal; with FORCE_COLOR, rich takes a pipe for one."""
    return console.is_terminal and console.file.isatty()


def show(what: rich.table.Table | Text) -> None:
    """Print to the terminal, or 100 characters wide to a file. Text is not wrapped."""
    console = Console(width=None if is_terminal(Console()) else 100)
    console.print(what, crop=False, soft_wrap=isinstance(what, Text))


def progress_bar(*columns: str | ProgressColumn, shown: bool = True) -> Progress:
    """Return a rich progress bar with these columns, or with the default columns. `shown=False` never shows it."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not (shown and is_terminal(console)))


def tracked(steps: Iterable[T], what: str, total: float | None = None, shown: bool = True) -> Iterable[T]:
    """Yield the steps, and show how many are done. Steps without a length need `total`."""
    with progress_bar(shown=shown) as bar:
        yield from bar.track(steps, total, description=what)


def counter(what: str, unit: str = "") -> Progress:
    """Return a bar for an unknown total: it shows how much is done, and the elapsed time."""
    return progress_bar(TextColumn(what), TextColumn(f"{{task.completed:,.0f}}{unit}"), TimeElapsedColumn())
