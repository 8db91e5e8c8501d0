"""ESimCSE: which subwords or words are repeated, and how often."""

import random
from collections import Counter

import numpy as np
import pytest

from simcse_pl.data.view import ViewInput
from simcse_pl.methods.esimcse import TokenRepetition, WordRepetition


@pytest.mark.parametrize(
    ("formula", "inner", "most"),
    [
        *(("paper", 2, 1), ("paper", 6, 2), ("paper", 20, 6), ("released", 2, 0), ("released", 60, 9)),
        *(("words", 2, 1), ("words", 6, 2), ("words", 20, 6)),
    ],
)
def test_subwords_or_words_are_repeated_in_order_and_special_tokens_are_not(formula, inner, most):
    """`most` is max(2, int(rate N)), but not N, of the paper; min(10, int(rate L)) - 1 of the code, L = N + 2."""
    tokens = np.array([101, *range(inner), 102])
    inputs = [ViewInput(" ".join(map(str, range(inner))), (), random.Random(i), tokens) for i in range(2000)]
    if formula == "words":
        made = [[101, *map(int, view.split()), 102] for view in WordRepetition()(inputs)]
    else:
        made = [view.tolist() for view in TokenRepetition(0.32, formula)(inputs)]
    for view in made:
        assert list(dict.fromkeys(view)) == [101, *range(inner), 102]
        assert max(Counter(view).values()) <= 2 and view.count(101) == view.count(102) == 1
    expected = 2000 / (most + 1)
    added = Counter(len(view) - inner - 2 for view in made)
    assert added == {count: pytest.approx(expected, abs=5 * expected**0.5) for count in range(most + 1)}
    repeated = Counter(token for view in made for token, times in Counter(view).items() if times == 2)
    mean = sum(repeated.values()) / inner
    assert [repeated[token] for token in range(inner)] == [pytest.approx(mean, abs=6 * mean**0.5)] * inner


def test_the_models_limit_ends_the_repetitions():
    tokens = np.arange(12)
    for seed in range(50):
        free, view = (
            TokenRepetition(0.5)([ViewInput("", (), random.Random(seed), tokens, longest=limit)])[0]
            for limit in (None, 13)
        )
        assert len(view) == min(13, len(free)) and list(dict.fromkeys(view.tolist())) == tokens.tolist()
