"""The view that masks a span: how many tokens, where, and within the larger span of another view."""

import random
from collections import Counter

import numpy as np
import pytest

from simcse_pl.data.views.sentences import Dropout
from simcse_pl.data.views.span_masking import SpanMasking
from simcse_pl.data.views.view import ViewInput
from simcse_pl.utils.errors import UserError

MASK = 999


def made(rate, inner, count, special=(1, 1)):
    tokens = np.arange(sum(special) + inner)
    return SpanMasking(rate)([ViewInput("", (), random.Random(i), tokens, special, mask=MASK) for i in range(count)])


@pytest.mark.parametrize("special", [(1, 1), (0, 2)])
@pytest.mark.parametrize(
    ("rate", "inner", "length"), [(0.2, 10, 2), (0.4, 10, 4), (0.2, 2, 0), (0.2, 3, 1), (1.0, 4, 4), (0.2, 0, 0)]
)
def test_a_span_of_the_rates_length_is_masked_at_any_place(rate, inner, length, special):
    starts = Counter()
    for view in made(rate, inner, 3000, special):
        masked = [place for place, token in enumerate(view) if token == MASK]
        assert masked == list(range(masked[0], masked[0] + length)) if length else not masked
        assert all(token in (place, MASK) for place, token in enumerate(view)) and len(view) == inner + sum(special)
        starts.update(masked[:1])
    places = range(special[0], special[0] + inner - length + 1) if length else ()
    expected = 3000 / max(1, len(places))
    assert starts == {place: pytest.approx(expected, abs=6 * expected**0.5) for place in places}


def test_the_larger_span_of_a_row_contains_the_smaller_one(given_rows, tokenizer):
    tokens, mask = [(np.arange(1000, 1002 + n),) for n in range(30)], tokenizer.mask_token_id
    views = [Dropout(), SpanMasking(0.4), SpanMasking(0.2), SpanMasking(1.0)]
    own = given_rows([("",)] * 30, tokens, views)
    spans = set()
    for epoch in range(20):
        for _, _, large, small, whole in own.with_views([(epoch, row) for row in range(30)]):
            where = [{place for place, token in enumerate(view) if token == mask} for view in (small, large, whole)]
            assert where[0] <= where[1] <= where[2] == set(range(1, len(whole) - 1))
            spans.add((len(whole), *sorted(where[0])))
    assert len(spans) > 200, "spans differ between epochs"


def test_a_tokenizer_without_mask_token_is_an_error():
    with pytest.raises(UserError, match="^views: a span cannot be masked, because .* has no mask token$"):
        SpanMasking()([ViewInput("", (), random.Random(0), np.arange(5))])
