"""Errors that are told to the user in a line of their own, without a traceback, and being told to stop."""

import re
import reprlib
import signal
from collections.abc import Sequence

USER_ERROR_STATUS, FAILURE_STATUS = 2, 1
HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")  # json can write these alone; UTF-8 and tokenizers cannot take them


class UserError(ValueError):
    """Something the person running the program can put right: a path, an option, a row of a file.

    The message is one line: what is wrong, where, and what to do about it. The front doors print it
    to standard error and exit with status 2; any other exception is a defect and keeps its traceback.
    """


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
