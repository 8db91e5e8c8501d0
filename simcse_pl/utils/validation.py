"""Checks of values that several readers share."""

import math
import re

LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON allows it; UTF-8 and tokenizers do not


def as_number(value: str | float) -> float | None:
    """Return a text as a finite number; None if it is not one."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
