"""Errors that are told to the user in a line of their own, without a traceback, and being told to stop."""

import difflib
import math
import re
import reprlib
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

USER_ERROR_STATUS, FAILURE_STATUS = 2, 1
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # json can write these alone; UTF-8 and tokenizers cannot take them
_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # control characters and halves of others


class UserError(ValueError):
    """Something the person running the program can put right: a path, an option, a row of a file.

    The message is one line: what is wrong, where, and what to do about it. The front doors print it
    to standard error and exit with status 2. Any other exception is one line too, with status 1;
    `debug=true` shows its traceback. What a message quotes may come from a stranger's file:
    characters that would break the line, or move a terminal's cursor, stand in it as their escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_NO_TEXT.sub(lambda found: ascii(found[0])[1:-1], message))


class SweepError(UserError):
    """A mistake that is of all jobs of a sweep, and ends it: the others would only make it worse."""


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


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its class where it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def exception_chain(
    error: BaseException | None, contexts: Callable[[BaseException], bool] = lambda error: True
) -> Iterator[BaseException]:
    """An exception, the one that it was raised from, and so on.

    Args:
        error: the last of them.
        contexts: of which exceptions the one that was being handled counts as well, where there is no other; all.
    """
    seen: list[BaseException] = []  # under a debugger OmegaConf has errors that are their own cause
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or (error.__context__ if contexts(error) else None)


def did_you_mean(name: str, names: Collection[str]) -> str:
    """The nearest names, to be added to a message; nothing where none is near."""
    last = name.rpartition(".")[2]
    same = [own for own in names if own.rpartition(".")[2] == last]
    near = same or difflib.get_close_matches(name, names, n=2, cutoff=0.7)
    near = near or [own for own in names if difflib.get_close_matches(last, [own.rpartition(".")[2]], cutoff=0.8)]
    near = near or [own for own in names if own.endswith(f"_{last}")]  # max_epochs for epochs
    return f"; did you mean {' or '.join(near[:3])}?" if near else ""


def check_seed(seed: int) -> None:
    """Refuse a seed that torch, numpy and Python's generators do not all take as it is."""
    if not 0 <= seed < 2**32:
        raise UserError(f"seed={seed}: it must be 0 to {2**32 - 1}")


def check_amount(option: str, value: float, may_be_zero: bool = True) -> None:
    """Refuse a number that is below 0, infinite or nan; and 0 itself, where it may not be.

    Args:
        option: its name.
        value: what it is set to.
        may_be_zero: whether 0 is allowed.

    Raises:
        UserError: it is one of these.
    """
    if not (0 < value < math.inf or (may_be_zero and value == 0)):
        raise UserError(f"{option}={value}: it must be {'0 or more' if may_be_zero else 'above 0'}, and finite")


@contextmanager
def reraise_as(what: str, users_too: bool = False) -> Iterator[None]:
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
        raise UserError(f"{what}: {first_line(error)}") from error


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
    half = next((i for i, sentence in enumerate(sentences) if LONE_SURROGATE.search(sentence)), None)
    if half is not None:
        raise UserError(f"encode: sentence {half} holds half a character ({sentences[half][:20]!a})")
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size}: it must be at least 1")
