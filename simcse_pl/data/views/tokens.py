"""The view that repeats subwords (ESimCSE)."""

import numpy as np

from simcse_pl.data.views.view import TokenView, ViewInput
from simcse_pl.data.views.words import check_rate
from simcse_pl.models.tokenization import Tokens


class TokenRepetition(TokenView):
    """The sentence with some of its subwords repeated (ESimCSE, Wu et al. 2022, 3.1).

    The number of repeated subwords is drawn uniformly from 0 to max(2, rate * N), for N subwords, and is below N.
    Special tokens are not repeated. The view may be longer than data.max_length, but not longer than model.max_length:
    fewer subwords are repeated if the view would exceed it.

    Args:
        rate: the largest fraction of subwords to repeat, 0.32 in the paper.
        role: see View.
    """

    def __init__(self, rate: float = 0.32, role: str = "positive") -> None:
        super().__init__(role)
        check_rate(rate)
        self.rate = rate

    def make(self, own: ViewInput) -> Tokens:
        """Return the tokens in order, some of them twice."""
        start, end = own.special
        inner = len(own.tokens) - start - end
        if inner < 2:
            return own.tokens
        most = min(max(2, int(self.rate * inner)), inner - 1)
        count = own.random.randint(0, most)
        if own.longest is not None:
            count = min(count, max(0, own.longest - len(own.tokens)))
        times = np.ones(len(own.tokens), dtype=np.int64)
        times[own.random.sample(range(start, start + inner), count)] = 2
        return np.repeat(own.tokens, times)
