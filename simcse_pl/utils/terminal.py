"""The terminal: errors in one line, tables, and progress bars.

Bars are on standard error, and removed at the end.
"""

import argparse
import contextlib
import io
import logging
import math
import os
import re
import shlex
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn, TypeVar

from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.text import Text

from simcse_pl.utils.errors import USER_ERROR_STATUS, UserError, WriteError, exception_chain, first_line

T = TypeVar("T")
# Apart from UserError: a file in place of a folder, or a folder in place of a file.
_USER_ERRORS = (UserError, FileExistsError, IsADirectoryError, NotADirectoryError)
_NOT_OWN = (sysconfig.get_path("stdlib"), Path(__file__).parents[1])


def prepare_output() -> None:
    """Let standard output write what its encoding lacks, as an escape such as \\u4e2d; silence a useless warning."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)  # PEFT imports it; it lacks `kernels`
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def is_terminal(console: Console) -> bool:
    """Return whether a console writes to a terminal; with FORCE_COLOR, rich takes a pipe for one."""
    return console.is_terminal and console.file.isatty()


def show(what: Group | Text) -> None:
    """Print to the terminal, or 100 characters wide to a file. Text is not wrapped."""
    console = Console(width=None if is_terminal(Console()) else 100)
    # rich ends the process if nobody reads the output any more; a run still has results to write
    with contextlib.suppress(SystemExit):
        console.print(what, crop=False, soft_wrap=isinstance(what, Text))


def progress_bar(*columns: str | ProgressColumn, shown: bool = True) -> Progress:
    """Return a rich progress bar with these columns. `shown=False` never shows it."""
    console = Console(stderr=True)
    if shown := shown and is_terminal(console):  # a stream of its own: W&B records what is written to sys.stderr
        console.file = open(sys.stderr.fileno(), "w", encoding=sys.stderr.encoding, closefd=False)  # noqa: SIM115
    return Progress(*columns, console=console, transient=True, disable=not shown)


class Rate(ProgressColumn):
    """How many steps a bar makes in a second."""

    def render(self, task: Task) -> Text:
        """Return the mean of the last 30 seconds; empty before the first step."""
        return Text(f"{task.speed:,.{0 if task.speed > 100 else 1}f}/s" if task.speed else "")


def counting_bar(*columns: str, shown: bool = True) -> Progress:
    """Return a bar that shows how much is done, the rate, and the time left if the total is known; then `columns`."""
    numbers = MofNCompleteColumn(), Rate(), TimeRemainingColumn(compact=True)
    return progress_bar("{task.description}", BarColumn(), *numbers, *columns, shown=shown)


def tracked(steps: Iterable[T], what: str, total: float | None = None, shown: bool = True) -> Iterable[T]:
    """Yield the steps, and show how many are done. Steps without a length need `total`."""
    with counting_bar(shown=shown) as bar:
        yield from bar.track(steps, total, description=what)


def integer(text: str, least: int = 1) -> int:
    """Return an integer of the command line, which is `least` or more."""
    if not (text.isdecimal() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"{text} is not a number of {least} or more")
    return int(text)


def real(text: str) -> float:
    """Return a finite number of the command line."""
    if not math.isfinite(value := float(text)):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return value


def hydra_option(name: str, value: object) -> str:
    """Return an option of Hydra as a word of a shell, to be copied."""
    plain = re.fullmatch(r"[\w./:-]+", str(value))
    return shlex.quote(f"{name}={value}" if plain else f"{name}={hydra_text(str(value))}")


def hydra_text(text: str) -> str:
    """Return a text in quotation marks, as Hydra reads it."""
    escaped = re.sub(r'(\\*)("|$)', lambda end: 2 * end[1] + (r"\"" if end[2] else ""), text)
    return f'"{escaped}"'


def report_error(error: Exception, debug: bool, debug_option: str, as_typed: Callable[[str], str] = str) -> int:
    """Print an error to standard error, and return the exit status: 2 if the user made a mistake, otherwise 1.

    If a UserError or WriteError caused it, that one is printed. An error that a file of the user's raises, such as a
    loss of their own, is a mistake of the user. `debug`, which `debug_option` sets, prints the traceback.
    """
    causes = list(exception_chain(error))
    known = next((cause for cause in causes if _is_user_error(cause) or isinstance(cause, WriteError)), None)
    if isinstance(error, ModuleNotFoundError):  # a package of an extra
        known = UserError(f"{error}: pip install {error.name}")
    system = next((cause for cause in causes if isinstance(cause, OSError)), None)
    line = "" if known or system else _line_in_own_code(error)
    if system:
        flush_output()
    if debug:
        traceback.print_exception(error)
    else:
        cause = known or system
        text = as_typed(first_line(cause)) if cause else f"{type(error).__name__}: {first_line(error)}"
        if line:
            text = f"{line}: {text} (in your code; {debug_option} shows the traceback)"
        elif not known:
            text = f"{text} ({debug_option} shows where)"
        print(f"error: {text}", file=sys.stderr)
    return USER_ERROR_STATUS if line or any(map(_is_user_error, causes)) else 1


def _line_in_own_code(error: Exception) -> str:
    """Return the file and line of the user's own code that raised an error; empty if it is a library's or ours."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        library = {"site-packages", "dist-packages"} & {*file.parts}
        if file.is_file() and not library and not any(file.is_relative_to(folder) for folder in _NOT_OWN):
            return f"{os.path.relpath(file) if file.is_relative_to(Path.cwd()) else file}:{frame.lineno}"
    return ""


def flush_output() -> None:
    """Write buffered output, or discard what cannot be written, which would fail again when Python exits."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(io.UnsupportedOperation):  # a test's stdout is not a file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_quietly() -> NoReturn:
    """Exit as a command of a shell whose output nobody reads any more, for example with `| head`."""
    flush_output()
    sys.exit(141)


def _is_user_error(error: BaseException) -> bool:
    # Lightning's exception is known by its name, because importing Lightning takes seconds.
    return isinstance(error, _USER_ERRORS) or type(error).__name__ == "MisconfigurationException"
