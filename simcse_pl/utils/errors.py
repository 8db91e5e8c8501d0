"""User-facing errors. Each is printed as one line without a traceback."""

import difflib
from collections.abc import Collection, Iterator
from contextlib import contextmanager

USER_ERROR_STATUS = 2  # the exit status; any other failure has 1
COLUMNS = "the option columns"  # stands in messages for the option as the user types it


class UserError(ValueError):
    """A mistake that the user can correct: a path, an option, a row of a file.

    All functions that read a file or a model raise it if the file is missing or damaged.

    The message is one line: what is wrong, where, and what to do about it. A command prints it and exits with status 2.
    Unprintable characters are escaped, because messages quote the user's files.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(char if char.isprintable() else ascii(char)[1:-1] for char in message))


class SweepError(UserError):
    """A mistake that affects every job of a sweep. It ends the sweep."""


class WriteError(RuntimeError):
    """The system rejects a write, such as to a full disk. The exit status is 1."""


class Stopped(SystemExit):
    """A signal stopped the process. The exit status is 128 plus its number, as in a shell."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its class name if it is empty."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, the exception that it was raised from or during, and so on."""
    seen: list[BaseException] = []  # OmegaConf's errors can be their own cause
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def did_you_mean(name: str, names: Collection[str]) -> str:
    """Return the nearest names as the end of an error message; empty if none is near."""
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.7)
    return f"; did you mean {' or '.join(near)}?" if near else ""


@contextmanager
def reraise_as(what: str, users_too: bool = False) -> Iterator[None]:
    """Raise UserError with `what` before the message, in place of any other exception but a WriteError.

    Use it around a library that reads a file which may be damaged. With `users_too`, a UserError also gets `what`.
    """
    kept = WriteError if users_too else WriteError | UserError
    try:
        yield
    except BaseException as error:
        if not is_failure(error) or isinstance(error, kept):
            raise
        raise UserError(f"{what}: {first_line(error)}") from error


@contextmanager
def prefixed(option: str, columns: str = COLUMNS) -> Iterator[None]:
    """Begin the message of a UserError with an option, such as the config path of a loss, unless the option is empty.

    `columns` is how the user types the option of the columns there.
    """
    try:
        yield
    except UserError as error:
        message = (f"{option}: {error}" if option else str(error)).replace(COLUMNS, columns)
        raise UserError(message) if message != str(error) else error from error.__cause__


def is_failure(error: BaseException) -> bool:
    """Return whether an error is an `Exception`, or a panic of a Rust library, which is not."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
