"""Errors that are told to the user in a line of their own, without a traceback, and being told to stop."""

import difflib
import re
import reprlib
import signal
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

USER_ERROR_STATUS, FAILURE_STATUS = 2, 1
HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")  # json can write these alone; UTF-8 and tokenizers cannot take them
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


def tell(error: Exception, debug: bool, to_debug: str) -> int:
    """Print what has gone wrong to standard error, in one line; the exit status that says whose fault it is.

    Args:
        error: whatever it is; a UserError that it comes from is told in its place.
        debug: print the traceback instead.
        to_debug: the option that does so.
    """
    mistake = next((cause for cause in _causes(error) if _is_the_users(cause)), None)
    if debug:
        traceback.print_exception(error)
    elif mistake is not None:
        print(f"error: {one_line(mistake)}", file=sys.stderr)
    elif isinstance(error, OSError):  # a full disk, say
        print(f"error: {one_line(error)} ({to_debug} shows where)", file=sys.stderr)
    else:
        what = f"{type(error).__name__}: {one_line(error)}"
        print(f"error: {what} (this should not happen; {to_debug} shows where)", file=sys.stderr)
    return FAILURE_STATUS if mistake is None else USER_ERROR_STATUS


def _is_the_users(error: BaseException) -> bool:
    """Lightning's are known by their name: its import takes seconds, and most programs do without it."""
    mistakes = (UserError, FileExistsError, IsADirectoryError, NotADirectoryError)  # a file where a folder is to be
    return isinstance(error, mistakes) or type(error).__name__ == "MisconfigurationException"  # no such device, say


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        hidden = error.__context__ if type(error).__module__ == "omegaconf.errors" else None
        error = error.__cause__ or hidden


def did_you_mean(name: str, names: Collection[str]) -> str:
    """The nearest names, to be added to a message; nothing where none is near."""
    last = name.rpartition(".")[2]
    same = [own for own in names if own.rpartition(".")[2] == last]
    near = same or difflib.get_close_matches(name, names, n=2, cutoff=0.7)
    near = near or [own for own in names if difflib.get_close_matches(last, [own.rpartition(".")[2]], cutoff=0.8)]
    return f"; did you mean {' or '.join(near[:3])}?" if near else ""


def check_seed(seed: int) -> None:
    """Refuse a seed that torch, numpy and Python's generators do not all take as it is."""
    if not 0 <= seed < 2**32:
        raise UserError(f"seed={seed}: it must be 0 to {2**32 - 1}")


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
    """Refuse what no `encode` takes: one string, a sentence that is no text, a batch of less than one."""
    if isinstance(sentences, str):
        raise UserError("encode takes a list of sentences, and was given one string")
    odd = next((i for i, sentence in enumerate(sentences) if not isinstance(sentence, str)), None)
    if odd is not None:
        raise UserError(f"encode: sentence {odd} is no text but {reprlib.repr(sentences[odd])}")
    half = next((i for i, sentence in enumerate(sentences) if HALF_A_CHARACTER.search(sentence)), None)
    if half is not None:
        raise UserError(f"encode: sentence {half} holds half a character ({sentences[half][:20]!a})")
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size}: it must be at least 1")
