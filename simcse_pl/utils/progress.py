"""Progress bars on standard error, which are gone when the work is done; none where nobody looks, as in a log."""

from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn, TimeElapsedColumn

T = TypeVar("T")


def progress_bar(*columns: str | ProgressColumn, shown: bool = True) -> Progress:
    """A bar to add tasks to.

    Args:
        columns: rich's; its own choice where none is given.
        shown: whether the caller wants one.
    """
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal))


def tracked(steps: Iterable[T], what: str, total: float | None = None, shown: bool = True) -> Iterable[T]:
    """Steps of some work, and a bar of how many are done.

    Args:
        steps: what is gone through.
        what: is done with them.
        total: how many there are, where they do not say so themselves.
        shown: whether the caller wants a bar.
    """
    with progress_bar(shown=shown) as bar:
        yield from bar.track(steps, total, description=what)


def counter(what: str, unit: str = "") -> Progress:
    """How many of something unknown are done, and for how long; its task has no total."""
    return progress_bar(TextColumn(what), TextColumn(f"{{task.completed:,.0f}}{unit}"), TimeElapsedColumn())
