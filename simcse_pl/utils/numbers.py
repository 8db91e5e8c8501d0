"""Numbers in the text of files and options."""

import math
import re


def as_number(value: str | float) -> float | None:
    """Return a text as a finite number, with a point or a comma for the decimals; None if it is not one.

    Examples:
        >>> as_number("0,5"), as_number("1,234.5"), as_number("1.234,5"), as_number("one")
        (0.5, 1234.5, 1234.5, None)
    """
    if isinstance(value, str):
        thousands = "," if value.rfind(",") < value.rfind(".") else "."
        if re.fullmatch(rf"[+-]?\d{{1,3}}([{thousands}]\d{{3}})+[.,]\d+", value):
            value = value.replace(thousands, "")
        value = value.replace(",", ".")
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
