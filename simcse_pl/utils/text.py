"""Numbers in the text of files and options, sentences that are given, and sentences that a search finds."""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from simcse_pl.utils.errors import UserError


def as_number(value: str | float) -> float | None:
    """Return a text as a finite number, with a point or a comma for the decimals; None if it is not one.

    Examples:
        >>> as_number("0,5"), as_number("1,234.5"), as_number("1.234,5"), as_number("one")
        (0.5, 1234.5, 1234.5, None)
    """
    if isinstance(value, str):
        if "_" in value:  # Python reads an id such as 2021_10 as 202110
            return None
        thousands = "," if value.rfind(",") < value.rfind(".") else "."
        if re.fullmatch(rf"[+-]?\d{{1,3}}([{thousands}]\d{{3}})+[.,]\d+", value):
            value = value.replace(thousands, "")
        value = value.replace(",", ".")
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def without_folders(text: str) -> str:
    """Return a text without the folders of absolute paths, which say nothing on other machines."""
    return re.sub(r"(?<![\w./:])~?/(?:[^\n/,\];]+/)+", "", text)


class Neighbour(NamedTuple):
    """A sentence of the corpus and its cosine similarity with the query, rounded to 6 digits."""

    sentence: str
    similarity: float = math.nan


def checked_sentences(sentences: Sequence[str]) -> list[str]:
    """Return a list, tuple, series or array of strings as a list in NFC, as files; raise UserError for anything else.

    A string would be read as its characters, a data frame as the names of its columns, and a generator only once.
    """
    is_ordered = isinstance(sentences, Sequence) and not isinstance(sentences, str)
    is_flat = is_ordered or len(getattr(sentences, "shape", ())) == 1
    wrong = [item for item in sentences if not isinstance(item, str)] if is_flat else [sentences]
    if wrong:
        raise UserError(f"sentences should be a list of strings: found {type(wrong[0]).__name__}")
    return [unicodedata.normalize("NFC", sentence) for sentence in sentences]
