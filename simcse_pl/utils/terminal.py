"""Tables, text and progress bars in the terminal. Bars are on standard error, and removed at the end."""

import io
import sys
from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console, Group
from rich.progress import Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

T = TypeVar("T")


def accept_any_text() -> None:
    """Let standard output write what its encoding lacks, as an escape such as \\u4e2d."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def is_terminal(console: Console) -> bool:
    """Return whether a console writes to a terminal; with FORCE_COLOR, rich takes a pipe for one."""
    return console.is_terminal and console.file.isatty()


def show(what: Group | Text) -> None:
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


def counter(what: str, unit: str = "", shown: bool = True) -> Progress:
    """Return a bar for an unknown total: it shows how much is done, and the elapsed time."""
    count = TextColumn(f"{{task.completed:,.0f}}{unit}")
    return progress_bar(TextColumn(what), count, TimeElapsedColumn(), shown=shown)
