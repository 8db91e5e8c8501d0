"""A nearest neighbour of a sentence."""

import math
from typing import NamedTuple


class Neighbour(NamedTuple):
    """A sentence of the corpus and its cosine similarity with the query, rounded to 6 digits."""

    sentence: str
    similarity: float = math.nan
