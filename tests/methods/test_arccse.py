"""ArcCSE: which spans are masked, and that they contain each other."""

import random
from collections import Counter

import numpy as np
import pytest

from simcse_pl.data.view import ViewInput
from simcse_pl.methods.arccse import SpanMasking
from simcse_pl.utils.errors import UserError

MASK = 999


def made(rate, inner, count, special=(1, 1)):
    tokens = np.arange(sum(special) + inner)
    return SpanMasking(rate)([ViewInput("", (), random.Random(i), tokens, special, mask=MASK) for i in range(count)])


@pytest.mark.parametrize(
    ("rate", "inner", "special", "length"), [(0.2, 10, (1, 1), 2), (0.2, 3, (0, 2), 1), (0.2, 2, (1, 1), 0)]
)
def test_a_span_of_the_rates_length_is_masked_at_any_place(rate, inner, special, length):
    starts = Counter()
    for view in made(rate, inner, 3000, special):
        masked = [place for place, token in enumerate(view) if token == MASK]
        assert masked == list(range(masked[0], masked[0] + length)) if length else not masked
        assert all(token in (place, MASK) for place, token in enumerate(view)) and len(view) == inner + sum(special)
        starts.update(masked[:1])
    places = range(special[0], special[0] + inner - length + 1) if length else ()
    expected = 3000 / max(1, len(places))
    assert starts == {place: pytest.approx(expected, abs=6 * expected**0.5) for place in places}


def test_the_larger_span_of_a_row_contains_the_smaller_one():
    assert SpanMasking.shared_random, "the views of a row draw the same numbers"
    for inner in (0, 7, 29):
        views = [made(rate, inner, 20) for rate in (0.2, 0.4, 1.0)]
        for of_row in zip(*views, strict=True):
            small, large, whole = ({place for place, token in enumerate(view) if token == MASK} for view in of_row)
            assert small <= large <= whole == set(range(1, inner + 1))


def test_a_tokenizer_without_a_mask_token_is_an_error():
    with pytest.raises(UserError, match="no mask token"):
        SpanMasking()([ViewInput("", (), random.Random(0), np.arange(9))])
