"""How every program here ends: what goes wrong is one line, and the status says whose fault it was."""

import contextlib
import errno
import io
import os
import sys
import traceback

from simcse_pl.utils.errors import (
    FAILURE_STATUS,
    USER_ERROR_STATUS,
    FailureError,
    UserError,
    WriteError,
    exception_chain,
    first_line,
)


def report_error(error: Exception, debug: bool, to_debug: str) -> int:
    """Print what has gone wrong to standard error, in one line; the exit status that says whose fault it is.

    Args:
        error: whatever it is; a mistake of the user's, or a failure, that it comes from is told in its place.
        debug: print the traceback instead.
        to_debug: the option that does so.
    """
    causes = list(exception_chain(error, contexts=_hides_its_cause))
    known = next((cause for cause in causes if _is_the_users(cause) or isinstance(cause, FailureError)), None)
    refused = next((cause for cause in causes if isinstance(cause, OSError)), None)  # by the system
    if refused:
        say_no_more()
    if debug:
        traceback.print_exception(error)
    elif known is not None:
        print(f"error: {first_line(known)}", file=sys.stderr)
    elif refused:
        print(f"error: {_refused(refused)} ({to_debug} shows where)", file=sys.stderr)
    else:
        what = f"{type(error).__name__}: {first_line(error)}"
        print(f"error: {what} (this should not happen; {to_debug} shows where)", file=sys.stderr)
    return USER_ERROR_STATUS if any(map(_is_the_users, causes)) else FAILURE_STATUS


def say_no_more() -> None:
    """Drop what is still to be written to standard output, which would fail once more at the end."""
    with contextlib.suppress(io.UnsupportedOperation):  # what stands in its place is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refused(error: OSError) -> str:
    """What cannot be written to a file is a WriteError that names it; so what has no name is standard output."""
    if error.errno == errno.ENOSPC and error.filename is None:
        return first_line(WriteError("to standard output", os.strerror(error.errno)))
    return first_line(error)


def _is_the_users(error: BaseException) -> bool:
    """Lightning's are known by their name: its import takes seconds, and most programs do without it."""
    mistakes = (UserError, FileExistsError, IsADirectoryError, NotADirectoryError)  # a file where a folder is to be
    return isinstance(error, mistakes) or type(error).__name__ == "MisconfigurationException"  # no such device, say


def _hides_its_cause(error: BaseException) -> bool:
    return type(error).__module__ == "omegaconf.errors"
