"""Errors that are told to the user in a line of their own, without a traceback, and being told to stop."""

import errno
import os
import signal
from collections.abc import Sequence
from pathlib import Path

USER_ERROR_STATUS, FAILURE_STATUS = 2, 1


class UserError(ValueError):
    """Something the person running the program can put right: a path, an option, a row of a file.

    The message is one line: what is wrong, where, and what to do about it. The front doors print it
    to standard error and exit with status 2; any other exception is a defect and keeps its traceback.
    """


class FailureError(RuntimeError):
    """What happens to a program that is right and rightly used: a disk that is full, a process that is killed.

    The message is one line, as UserError's; the status is 1.
    """


class WriteError(FailureError):
    """The system does not let something be written: no space, no permission.

    Args:
        what: a path, or what else is written to.
        why: the system's reason.
        then: what that means, after a semicolon.
    """

    def __init__(self, what: str | Path, why: str, then: str = "") -> None:
        super().__init__(f"cannot write {what}: {why}" + (f"; {then}" if then else ""))
        self.what, self.why = what, why


class Stopped(SystemExit):
    """Told to stop by a signal: the exit status is 128 and its number, as a shell has it.

    Args:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.name = signal.Signals(number).name


def one_line(error: BaseException) -> str:
    """The first line of what an exception says, or its class where it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def failure_line(error: FailureError | OSError) -> str:
    """One line that tells a failure; what cannot be written to a file is a WriteError that names it."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        return one_line(WriteError("to standard output", os.strerror(error.errno)))
    return one_line(error)


def check_sentences(sentences: Sequence[str], batch_size: int) -> None:
    """Refuse what no `encode` takes: one string, a sentence that is no string, a batch of less than one."""
    if isinstance(sentences, str):
        raise UserError("encode takes a list of sentences, and was given one string")
    odd = next((i for i, sentence in enumerate(sentences) if not isinstance(sentence, str)), None)
    if odd is not None:
        raise UserError(f"encode: sentence {odd} is no text but {sentences[odd]!r}")
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size}: it must be at least 1")
