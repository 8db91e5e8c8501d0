"""The base classes of views, which make the positive of a row of one sentence (Tables 1 and 2 of the paper)."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ViewInput:
    """What a positive is made from.

    Args:
        sentence: the row's sentence.
        following: the next sentences of its document, at most `View.num_following`.
        random: the only source of randomness, seeded by the seed, the epoch and the row.
    """

    sentence: str
    following: tuple[str, ...]
    random: random.Random


class View(ABC):
    """Makes positives. The positive of a row depends only on the row, the seed and the epoch.

    Attributes:
        num_following: how many of the next sentences it needs; if 1 or more, the last row of a document is left out.
    """

    num_following: int = 0

    @abstractmethod
    def __call__(self, inputs: Sequence[ViewInput]) -> list[str]:
        """Return the positives of a batch, in order."""


class SentenceView(View):
    """A view that makes the positive of each sentence separately."""

    def __call__(self, inputs: Sequence[ViewInput]) -> list[str]:
        """Return the positives of a batch, in order."""
        return [self.positive(own) for own in inputs]

    @abstractmethod
    def positive(self, own: ViewInput) -> str:
        """Return the positive of one sentence."""
