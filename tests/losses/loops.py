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


def log_sum_exp(scores, weights=None):
    """Return log sum w exp(x) without overflow; the weights are 1 by default."""
    weighted = [(x, w) for x, w in zip(scores, weights or [1.0] * len(scores), strict=True) if w]
    largest = max(x for x, _ in weighted)
    return largest + math.log(math.fsum(w * math.exp(x - largest) for x, w in weighted))
