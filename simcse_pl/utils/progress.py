"""Progress bars on standard error, removed at the end. They appear in a terminal only."""

from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn, TimeElapsedColumn

from simcse_pl.utils.terminal import is_terminal

T = TypeVar("T")


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
