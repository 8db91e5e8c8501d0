"""The view of subwords: which are repeated, and how often."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from simcse_pl.data.views.tokens import TokenDeletion, TokenInsertion, TokenRepetition, TokenReversal, TokenShuffle
from simcse_pl.data.views.view import ViewInput


def views(inner, count, view):
    tokens = np.array([101, *range(inner), 102])
    return [own.tolist() for own in view([ViewInput("", (), random.Random(i), tokens) for i in range(count)])]


@pytest.mark.parametrize(
    ("rate", "formula", "inner", "most"),
    [
        *[(0.32, "paper", *pair) for pair in ((2, 1), (3, 2), (6, 2), (12, 3), (20, 6))],
        *[(0.32, "released", *pair) for pair in ((2, 0), (4, 0), (5, 1), (12, 3), (20, 6), (30, 9), (60, 9))],
        (0.3, "released", 8, 2),
        (0.28, "released", 8, 1),
    ],
)
def test_subwords_are_repeated_in_order_and_special_tokens_are_not(rate, formula, inner, most):
    """`most` is max(2, int(rate N)), but not N, of the paper; min(10, int(rate L)) - 1 of the code, L = N + 2."""
    made = views(inner, 2000, TokenRepetition(rate, formula))
    for view in made:
        assert list(dict.fromkeys(view)) == [101, *range(inner), 102]
        assert max(Counter(view).values()) <= 2 and view.count(101) == view.count(102) == 1
    expected = 2000 / (most + 1)
    added = Counter(len(view) - inner - 2 for view in made)
    assert added == {count: pytest.approx(expected, abs=5 * expected**0.5) for count in range(most + 1)}
    repeated = Counter(token for view in made for token, times in Counter(view).items() if times == 2)
    mean = sum(repeated.values()) / inner
    expected = pytest.approx(mean, abs=6 * mean**0.5)
    assert [repeated[token] for token in range(inner)] == [expected] * inner


def test_the_models_limit_ends_the_repetitions():
    tokens = np.arange(12)
    for longest in (12, 13, 14):
        for seed in range(50):
            free, view = (
                TokenRepetition(0.5)([ViewInput("", (), random.Random(seed), tokens, longest=limit)])[0]
                for limit in (None, longest)
            )
            assert len(view) == min(longest, len(free)) and list(dict.fromkeys(view.tolist())) == tokens.tolist()
            assert len(free) > longest or free.tolist() == view.tolist()


VIEWS = [TokenRepetition(), TokenShuffle(), TokenReversal(), TokenDeletion(0.5), TokenInsertion(0.5)]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: type(view).__name__)
@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 1), (1, 0), (1, 2)])
def test_special_tokens_keep_their_places(view, start, end):
    tokens = np.array([*[101] * start, *range(6), *[102] * end], dtype=np.int32)
    for i in range(20):
        before = tokens.copy()
        (made,) = view([ViewInput("", (), random.Random(i), tokens, (start, end))])
        assert made.dtype == np.int32 and (tokens == before).all()
        assert made[:start].tolist() == [101] * start and made[len(made) - end :].tolist() == [102] * end
        assert set(made[start : len(made) - end].tolist()) <= set(range(6))
    (empty,) = view([ViewInput("", (), random.Random(0), np.array([101] * start + [102] * end), (start, end))])
    assert empty.tolist() == [101] * start + [102] * end


def test_every_order_has_equal_probability():
    made = Counter(tuple(view[1:-1]) for view in views(3, 3000, TokenShuffle()))
    assert len(made) == 6 and all(count == pytest.approx(500, abs=110) for count in made.values())


def test_the_reversal_is_no_random_order():
    assert views(4, 3, TokenReversal()) == [[101, 3, 2, 1, 0, 102]] * 3


@pytest.mark.parametrize(("rate", "inner", "count"), [(0.2, 2, 0), (0.2, 3, 1), (0.2, 13, 3), (0.5, 7, 4), (1.0, 3, 3)])
def test_the_rate_is_rounded_to_the_nearest_number_of_subwords(rate, inner, count):
    for view in views(inner, 50, TokenDeletion(rate)):
        assert len(view) == inner + 2 - count and [101, *sorted(view[1:-1]), 102] == view
    for view in views(inner, 50, TokenInsertion(rate)):
        assert len(view) == inner + 2 + count and set(view) == {101, *range(inner), 102}


def test_every_subword_is_deleted_and_inserted_with_equal_probability():
    """Copies are at any position, not beside the original as in ESimCSE."""
    deleted = Counter(i for view in views(5, 2000, TokenDeletion(0.2)) for i in range(5) if i not in view)
    inserted = views(5, 2000, TokenInsertion(0.2))
    copied = Counter(token for view in inserted for token, times in Counter(view).items() if times == 2)
    for counts in (deleted, copied):
        assert [counts[i] for i in range(5)] == [pytest.approx(400, abs=90)] * 5
    beside = sum(any(first == second for first, second in itertools.pairwise(view)) for view in inserted)
    assert beside == pytest.approx(2000 / 3, abs=110)  # 2 of the 6 positions


def test_the_first_occurrence_of_a_chosen_subword_is_deleted():
    tokens = np.array([7, 8, 7, 7])
    made = {tuple(TokenDeletion(0.25)([ViewInput("", (), random.Random(i), tokens, (0, 0))])[0]) for i in range(50)}
    assert made == {(8, 7, 7), (7, 7, 7)}


@pytest.mark.parametrize(
    ("max_length", "longest", "length"),
    [(None, None, 15), (12, None, 12), (None, 11, 11), (12, 11, 11), (11, 12, 11), (9, None, 10), (None, 10, 10)],
)
def test_the_lengths_end_the_insertions(max_length, longest, length):
    view, tokens = TokenInsertion(0.5, max_length), np.arange(10)
    (made,) = view([ViewInput("", (), random.Random(3), tokens, (0, 0), longest)])
    assert len(made) == length
