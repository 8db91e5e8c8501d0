"""Nearest neighbours of sentences, before and after training."""

import math
from dataclasses import dataclass
from typing import NamedTuple


class Neighbour(NamedTuple):
    """A sentence of the corpus and its cosine similarity with the query, rounded to 6 digits."""

    sentence: str
    similarity: float = math.nan


@dataclass(frozen=True)
class QueryNeighbours:
    """A sentence and its nearest neighbours before and after training, nearest first."""

    sentence: str
    before: list[Neighbour]
    after: list[Neighbour]

    def is_new(self, neighbour: Neighbour) -> bool:
        """Return whether a neighbour is among the nearest only after training."""
        return neighbour.sentence not in {other.sentence for other in self.before}


@dataclass(frozen=True)
class Neighbourhood:
    """The neighbours on a page.

    Args:
        corpus: name of the sentences.
        sentences: number of distinct sentences.
        run: label of the encoder's run; None if no run has an encoder.
        queries: some of the sentences.
        problem: why there are no neighbours; None if there are.
    """

    corpus: str
    sentences: int
    run: str | None
    queries: list[QueryNeighbours]
    problem: str | None = None
