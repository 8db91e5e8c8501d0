"""Numbers in the text of files and options."""

import math


def as_number(value: str | float) -> float | None:
    """Return a text as a finite number, with a point or a comma for the decimals; None if it is not one."""
    try:
        number = float(value.replace(",", ".") if isinstance(value, str) else value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
