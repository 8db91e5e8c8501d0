"""Views: one more sentence for a row, made from its anchor (Tables 1 and 2 of the paper)."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from simcse_pl.utils.types import Checked, Role, Tokens

Segmenter = Callable[[str], list[str]]  # splits a sentence into words
Rate = Annotated[float, Field(gt=0, le=1)]  # a share of the words or tokens of a sentence


def spaces(text: str) -> list[str]:
    """Return the words between white space, which is normalized to single spaces.

    The segmenter of the paper (princeton-nlp/SimCSE, issue 231).

    Examples:
        >>> spaces("A dog runs, fast.")
        ['A ', 'dog ', 'runs, ', 'fast. ']
    """
    return [f"{word} " for word in text.split()]


@dataclass(frozen=True)
class ViewInput:
    """What a view is made from.

    Args:
        sentence: the row's anchor.
        following: the next sentences of its document, at most `View.num_following`.
        random: the only source of randomness, seeded by the seed, the epoch (unless `View.once`), the row and the view.
        tokens: the token ids of the anchor, [tokens], with special tokens and truncated to data.max_length; if words of
            a segmenter are masked whole, tokens inside a word have INSIDE_WORD added.
        special: the numbers of special tokens at the start and at the end of `tokens`.
        longest: the maximum number of tokens of a view, which the model sets; None for no maximum.
        mask: the id of the tokenizer's mask token; None if it has none.
    """

    sentence: str
    following: tuple[str, ...]
    random: random.Random
    tokens: Tokens
    special: tuple[int, int] = (1, 1)
    longest: int | None = None
    mask: int | None = None


class View(Checked, ABC):
    """Makes one view for each row. A view depends only on the row, the seed and the epoch.

    Args:
        role: role of the view in the loss: positive, negative or other.

    Attributes:
        num_following: number of next sentences that it needs; with 1 or more, the last row of a document is left out.
        shared_random: whether it draws the same random numbers as the row's other views that share them.
        once: whether the view of a row is the same in all epochs.
        roles: the role of each sentence that it makes of a row. A first `anchor` takes the place of the row's sentence.
    """

    num_following: int = 0
    shared_random: bool = False
    once: bool = False
    role: Role = Role.POSITIVE

    def __init__(self, role: Role = Role.POSITIVE) -> None:
        self.role = Role(role)

    @property
    def roles(self) -> Sequence[str]:  # see Attributes
        return (self.role,)

    def check_text(self, sentences: Sequence[str]) -> None:  # most views fit any text
        """Raise UserError if the view is not meant for a text, such as one of another language."""

    @abstractmethod
    def __call__(self, inputs: Sequence[ViewInput]) -> Sequence[Any]:
        """Return the views of a batch, in order: text, or token ids with special tokens; a list for several roles."""


class SentenceView(View):
    """A view that is made of each sentence separately."""

    def __call__(self, inputs: Sequence[ViewInput]) -> list[Any]:
        return [self.make(source) for source in inputs]

    @abstractmethod
    def make(self, source: ViewInput) -> Any:
        """Return the view of one sentence: text, or token ids with special tokens."""


class Dropout(SentenceView):
    """The sentence itself. Only the encoder's dropout makes the two views differ (unsupervised SimCSE, section 3).

    If it is the only view, rows that have a positive do not get it.
    """

    def make(self, source: ViewInput) -> Tokens:
        return source.tokens
