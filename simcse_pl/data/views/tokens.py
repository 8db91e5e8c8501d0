"""The view that repeats subwords (ESimCSE)."""

import numpy as np

from simcse_pl.data.views.view import TokenView, ViewInput
from simcse_pl.data.views.words import check_rate
from simcse_pl.models.tokenization import Tokens
from simcse_pl.utils.errors import UserError

FORMULAS = ("paper", "released")
_RELEASED_LIMIT = 10


class TokenRepetition(TokenView):
    """The sentence with some of its subwords repeated (ESimCSE, Wu et al. 2022, 3.1).

    In plain terms: the positive has another length than the anchor, so that the length says less. Each of these numbers
    of repeated subwords has equal probability, but never are all repeated. For N subwords, and L tokens with the
    special ones, they are

        paper:    0 to max(2, rate N)
        released: 0 to min(10, rate L) - 1, and 0 if rate L < 1

    The second is the formula of the released code, which also draws once for all epochs. Special tokens are not
    repeated. The view may be longer than data.max_length, but not than model.max_length: fewer subwords of a sentence
    are then repeated, and none of a sentence that has this length already.

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
