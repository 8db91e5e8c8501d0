"""Nearest neighbours of sentences, before and after training."""

from dataclasses import dataclass
from typing import NamedTuple


class Neighbour(NamedTuple):
    """A sentence of the corpus and its cosine similarity with the query, rounded to 6 digits."""

    sentence: str
    similarity: float


@dataclass(frozen=True)
class Query:
    """A sentence, and those nearest to it, the nearest first."""

    sentence: str
    before: list[Neighbour]
    after: list[Neighbour]

    def is_new(self, neighbour: Neighbour) -> bool:
        """Whether training brought a neighbour among the nearest."""
        return neighbour.sentence not in {own.sentence for own in self.before}


@dataclass(frozen=True)
class Neighbourhood:
    """The neighbours of a page.

    Args:
        corpus: what the sentences are.
        sentences: how many distinct ones there are.
        run: whose encoder it is; None where no run has one.
        queries: of them.
        problem: why there are no neighbours to show; None where there are.
    """

    corpus: str
    sentences: int
    run: str | None
    queries: list[Query]
    problem: str | None = None
