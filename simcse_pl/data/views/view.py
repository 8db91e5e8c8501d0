"""Views: how the positive of a row of one sentence is made (Tables 1 and 2 of the paper)."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Original:
    """What a positive is made from.

    Args:
        sentence: the row's one sentence.
        following: up to three sentences that follow it in its document, in order.
        random: seeded by the seed, the epoch and the row: the only source of chance.
    """

    sentence: str
    following: tuple[str, ...]
    random: random.Random


class View(ABC):
    """Makes positives. What it gives for a row depends on that row, the seed and the epoch alone.

    Attributes:
        following: 1 or more where it needs sentences that follow; rows without any are left out of training.
    """

    following: ClassVar[int] = 0

    @abstractmethod
    def __call__(self, originals: Sequence[Original]) -> list[str]:
        """The positives of a batch, one each, in order."""


class SentenceView(View):
    """A view that makes each positive by itself."""

    def __call__(self, originals: Sequence[Original]) -> list[str]:
        """The positives of a batch, one each, in order."""
        return [self.positive(original) for original in originals]

    @abstractmethod
    def positive(self, original: Original) -> str:
        """The positive of one sentence."""
