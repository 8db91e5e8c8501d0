"""Formulas in plain Python, on lists of numbers."""

import math


def similarity(a, b, kind="cosine"):
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    lengths = 1.0 if kind == "dot" else math.hypot(*a) * math.hypot(*b)
    return dot / lengths if lengths else 0.0


def standardized(values):
    """Return values with mean 0 and variance 1, as batch normalization has them."""
    mean = math.fsum(values) / len(values)
    variance = math.fsum((x - mean) ** 2 for x in values) / len(values)
    return [(x - mean) / math.sqrt(variance + 1e-5) for x in values]
