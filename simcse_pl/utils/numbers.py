"""Numbers in the text of files and options."""

import math


def as_number(value: str | float) -> float | None:
    """Return a text as a finite number; None if it is not one."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
