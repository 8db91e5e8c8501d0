"""Views of token ids: subwords that are repeated (ESimCSE), or shuffled, reversed, deleted or inserted (PCL)."""

from abc import abstractmethod

import numpy as np

from simcse_pl.data.views.view import TokenView, ViewInput
from simcse_pl.data.views.words import check_rate
from simcse_pl.models.tokenization import Tokens
from simcse_pl.utils.errors import UserError

FORMULAS = ("paper", "released")
_RELEASED_LIMIT = 10


class TokenRepetition(TokenView):
    """The sentence with some of its subwords repeated (ESimCSE, Wu et al. 2022, 3.1).

    In plain terms: the positive is longer than the anchor, so that the length of a sentence says less about it. The
    number of repeated subwords is drawn uniformly. For N subwords, and L tokens including the special ones, it is

        paper:    0 to max(2, rate N)
        released: 0 to min(10, rate L) - 1, and 0 if rate L < 1

    but always below N. `released` is the formula of the released code, which draws the view of a row once for all
    epochs. Special tokens are not repeated. The view may be longer than data.max_length, but not longer than
    model.max_length: fewer subwords are repeated if the view would exceed it.

    Args:
        rate: the largest fraction of subwords to repeat, 0.32 in the paper.
        formula: `paper` or `released`.
        role: see View.

    Raises:
        UserError: the rate is out of range, or the formula unknown.
    """

    def __init__(self, rate: float = 0.32, formula: str = "paper", role: str = "positive") -> None:
        super().__init__(role)
        check_rate(rate)
        if formula not in FORMULAS:
            raise UserError(f"formula={formula}: choose one of {', '.join(FORMULAS)}")
        self.rate = rate
        self.once = formula == "released"

    def make(self, own: ViewInput) -> Tokens:
        """Return the tokens in order, some of them twice."""
        start, end = own.special
        inner = len(own.tokens) - start - end
        if inner < 2:
            return own.tokens
        released = max(0, min(_RELEASED_LIMIT, int(self.rate * len(own.tokens))) - 1)
        most = released if self.once else max(2, int(self.rate * inner))
        count = own.random.randint(0, min(most, inner - 1))
        if own.longest is not None:
            count = min(count, max(0, own.longest - len(own.tokens)))
        times = np.ones(len(own.tokens), dtype=np.int64)
        times[own.random.sample(range(start, start + inner), count)] = 2
        return np.repeat(own.tokens, times)


class _InnerTokens(TokenView):
    """A view that changes the tokens between the special ones."""

    def make(self, own: ViewInput) -> Tokens:
        """Return the view of one sentence, with special tokens."""
        start, end = own.special
        last = len(own.tokens) - end
        inner = self.change(own.tokens[start:last].tolist(), own)
        return np.concatenate([own.tokens[:start], np.array(inner, dtype=own.tokens.dtype), own.tokens[last:]])

    @abstractmethod
    def change(self, inner: list[int], own: ViewInput) -> list[int]:
        """Return the tokens of a view for those of a sentence, which it may change in place."""


class TokenShuffle(_InnerTokens):
    """The subwords of the sentence in random order (PCL, Wu et al. 2022)."""

    def change(self, inner: list[int], own: ViewInput) -> list[int]:
        """Return them in random order."""
        own.random.shuffle(inner)
        return inner


class TokenReversal(_InnerTokens):
    """The subwords of the sentence in reverse order (PCL, Wu et al. 2022)."""

    def change(self, inner: list[int], own: ViewInput) -> list[int]:
        """Return them in reverse order."""
        return inner[::-1]


class TokenDeletion(_InnerTokens):
    """The sentence without some of its subwords (PCL, Wu et al. 2022).

    As in the released code, the first occurrence of a chosen subword is removed.

    Args:
        rate: the fraction of subwords to delete, rounded to the nearest number.
        role: see View.
    """

    def __init__(self, rate: float = 0.2, role: str = "positive") -> None:
        super().__init__(role)
        check_rate(rate)
        self.rate = rate

    def change(self, inner: list[int], own: ViewInput) -> list[int]:
        """Return the remaining ones in order."""
        for _ in range(round(self.rate * len(inner))):
            inner.remove(own.random.choice(inner))
        return inner


class TokenInsertion(_InnerTokens):
    """The sentence with copies of some of its subwords at random positions (PCL, Wu et al. 2022: repetition).

    Args:
        rate: the number of copies, as a fraction of the subwords, rounded to the nearest number.
        max_length: the number of tokens that the view may have, special tokens included; None for that of the model.
            There are fewer copies in a longer view.
        role: see View.
    """

    def __init__(self, rate: float = 0.2, max_length: int | None = None, role: str = "positive") -> None:
        super().__init__(role)
        check_rate(rate)
        self.rate, self.max_length = rate, max_length

    def change(self, inner: list[int], own: ViewInput) -> list[int]:
        """Return all of them and the copies."""
        limits = [limit - len(own.tokens) for limit in (self.max_length, own.longest) if limit is not None]
        for _ in range(min([round(self.rate * len(inner)), *limits])):
            token = own.random.choice(inner)
            inner.insert(own.random.randint(0, len(inner)), token)
        return inner
