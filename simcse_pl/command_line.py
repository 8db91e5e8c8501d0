"""How every command but the front doors ends: what goes wrong is one line, and the status says whose fault it was."""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Iterator

from simcse_pl.errors import FAILURE_STATUS, USER_ERROR_STATUS, FailureError, UserError, failure_line

_INTERRUPTED, _NOBODY_READS = 130, 141  # as a shell has it


@contextlib.contextmanager
def told_in_one_line(parser: argparse.ArgumentParser) -> Iterator[None]:
    """End the program where the block fails: with 2 for a mistake of the user's, 1 for a failure.

    Args:
        parser: of the command.
    """
    try:
        yield
        sys.stdout.flush()
    except UserError as error:
        parser.exit(USER_ERROR_STATUS, f"error: {error}\n")
    except BrokenPipeError:  # whoever read the output has had enough
        say_no_more()
        sys.exit(_NOBODY_READS)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except (FailureError, OSError) as error:
        say_no_more()
        parser.exit(FAILURE_STATUS, f"error: {failure_line(error)}\n")


def say_no_more() -> None:
    """Drop what is still to be written to standard output, which would fail once more at the end."""
    with contextlib.suppress(io.UnsupportedOperation):  # what stands in its place is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
