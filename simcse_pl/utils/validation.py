"""Checks of arguments that several classes share."""

import math
import re
import reprlib
from collections.abc import Sequence

from simcse_pl.utils.errors import UserError

LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON allows it; UTF-8 and tokenizers do not


def as_number(value: str | float) -> float | None:
    """Return a text as a finite number; None if it is not one."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def check_sentences(sentences: Sequence[str], batch_size: int) -> None:
    """Raise UserError unless `encode` gets a list of strings and a positive batch size."""
    if isinstance(sentences, str):
        raise UserError("encode takes a list of sentences, not one string")
    for i, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise UserError(f"encode: sentence {i} is not a string but {reprlib.repr(sentence)}")
        if LONE_SURROGATE.search(sentence):
            raise UserError(f"encode: sentence {i} contains a lone surrogate ({sentence[:20]!a})")
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size}: it must be at least 1")
