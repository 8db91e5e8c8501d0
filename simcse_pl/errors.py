"""Errors that are told to the user in a line of their own, without a traceback, and being told to stop."""

import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

USER_ERROR_STATUS, FAILURE_STATUS = 2, 1
_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # control characters and halves of others


class UserError(ValueError):
    """Something the person running the program can put right: a path, an option, a row of a file.

    The message is one line: what is wrong, where, and what to do about it. The front doors print it
    to standard error and exit with status 2; any other exception is a defect and keeps its traceback.
    What it quotes may come from a stranger's file: characters that would break the line, or move a
    terminal's cursor, stand in it as their escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_NO_TEXT.sub(lambda found: ascii(found[0])[1:-1], message))


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


@contextmanager
def failing_as(what: str, users_too: bool = False) -> Iterator[None]:
    """Whatever a damaged file makes of a library in this block is the user's: `what`, and why.

    Args:
        what: has failed.
        users_too: put it before a UserError as well, which does not say where the mistake is.

    Raises:
        UserError: in place of any other exception.
    """
    try:
        yield
    except BaseException as error:
        if not is_failure(error) or (isinstance(error, UserError) and not users_too):
            raise
        raise UserError(f"{what}: {one_line(error)}") from error


def is_failure(error: BaseException) -> bool:
    """Whether something went wrong: an exception, or the panic of a library in Rust, which is no `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def check_sentences(sentences: Sequence[str], batch_size: int) -> None:
    """Refuse what no `encode` takes: one string, a sentence that is no string, a batch of less than one."""
    if isinstance(sentences, str):
        raise UserError("encode takes a list of sentences, and was given one string")
    odd = next((i for i, sentence in enumerate(sentences) if not isinstance(sentence, str)), None)
    if odd is not None:
        raise UserError(f"encode: sentence {odd} is no text but {sentences[odd]!r}")
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size}: it must be at least 1")
