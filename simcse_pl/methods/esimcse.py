"""ESimCSE (Wu et al. 2022): views with repeated subwords or words; momentum_queue.py has its queue."""

from typing import Literal

import numpy as np

from simcse_pl.data.view import Rate, Segmenter, SentenceView, ViewInput, spaces
from simcse_pl.utils.types import Role, Tokens

_RELEASED_LIMIT = 10


class TokenRepetition(SentenceView):
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
    """

    def __init__(
        self, rate: Rate = 0.32, formula: Literal["paper", "released"] = "paper", role: Role = Role.POSITIVE
    ) -> None:
        super().__init__(role)
        self.rate = rate
        self.once = formula == "released"

    def make(self, source: ViewInput) -> Tokens:
        start, end = source.special
        inner = len(source.tokens) - start - end
        if inner < 2:
            return source.tokens
        released = max(0, min(_RELEASED_LIMIT, int(self.rate * len(source.tokens))) - 1)
        most = released if self.once else max(2, int(self.rate * inner))
        count = source.random.randint(0, min(most, inner - 1))
        if source.longest is not None:
            count = min(count, max(0, source.longest - len(source.tokens)))
        times = np.ones(len(source.tokens), dtype=np.int64)
        times[source.random.sample(range(start, start + inner), count)] = 2
        return np.repeat(source.tokens, times)


class WordRepetition(SentenceView):
    """The sentence with some of its words repeated, so that its length is less informative (ESimCSE, Wu et al. 2022).

    The number of repeated words is drawn uniformly from 0 to max(2, rate * N), for N words, and is below N.
    `TokenRepetition` repeats subwords.

    Args:
        rate: the largest fraction of words to repeat, 0.32 in the paper.
        segment: splits the sentence into words.
    """

    def __init__(self, rate: Rate = 0.32, role: Role = Role.POSITIVE, segment: Segmenter = spaces) -> None:
        super().__init__(role)
        self.rate, self.segment = rate, segment

    def make(self, source: ViewInput) -> str:
        words = self.segment(source.sentence)
        most = max(0, min(max(2, int(self.rate * len(words))), len(words) - 1))
        repeated = set(source.random.sample(range(len(words)), source.random.randint(0, most)))
        return "".join(2 * word if i in repeated else word for i, word in enumerate(words)).strip()
