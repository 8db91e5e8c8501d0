"""The one kind of error that is told to the user in a line of its own, without a traceback."""


class UserError(ValueError):
    """Something the person running the program can put right: a path, an option, a row of a file.

    The message is one line: what is wrong, where, and what to do about it. The front doors print it
    to standard error and exit with status 2; any other exception is a defect and keeps its traceback.
    """


def one_line(error: BaseException) -> str:
    """The first line of what an exception says, or its class where it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
