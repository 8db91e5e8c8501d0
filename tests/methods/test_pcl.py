"""PCL: the peer network, and the views of subwords."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from simcse_pl.data.view import ViewInput
from simcse_pl.methods.esimcse import TokenRepetition
from simcse_pl.methods.pcl import TokenDeletion, TokenInsertion, TokenReversal, TokenShuffle


def views(inner, count, view):
    tokens = np.array([101, *range(inner), 102])
    return [made.tolist() for made in view([ViewInput("", (), random.Random(i), tokens) for i in range(count)])]


@pytest.mark.parametrize("view", [TokenRepetition(), TokenShuffle(), TokenDeletion(0.5), TokenInsertion(0.5)])
@pytest.mark.parametrize(("start", "end"), [(0, 1), (1, 2)])
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


def test_every_order_has_equal_probability_and_the_reversal_is_none_of_them():
    assert views(4, 3, TokenReversal()) == [[101, 3, 2, 1, 0, 102]] * 3
    made = Counter(tuple(view[1:-1]) for view in views(3, 3000, TokenShuffle()))
    assert len(made) == 6 and all(count == pytest.approx(500, abs=110) for count in made.values())


@pytest.mark.parametrize(("rate", "inner", "count"), [(0.2, 2, 0), (0.2, 3, 1), (0.5, 7, 4)])
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


@pytest.mark.parametrize(
    ("max_length", "longest", "length"), [(None, None, 15), (12, None, 12), (None, 11, 11), (11, 12, 11), (9, None, 10)]
)
def test_the_lengths_end_the_insertions(max_length, longest, length):
    view, tokens = TokenInsertion(0.5, max_length), np.arange(10)
    (made,) = view([ViewInput("", (), random.Random(3), tokens, (0, 0), longest)])
    assert len(made) == length
