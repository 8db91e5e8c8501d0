"""Views of whole sentences; the rates of views."""

import random
from functools import partial

import pytest

from simcse_pl.data.views.replace_by_mlm import MaskedLanguageModel
from simcse_pl.data.views.sentences import OneOfNextSentences
from simcse_pl.data.views.span_masking import SpanMasking
from simcse_pl.data.views.tokens import TokenDeletion, TokenInsertion, TokenRepetition
from simcse_pl.data.views.view import ViewInput
from simcse_pl.data.views.words import Crop, WordDeletion, WordRepetition
from simcse_pl.utils.errors import UserError

FOLLOWING = ("Second.", "Third.", "Fourth.")


def inputs(following: tuple[str, ...], count: int = 60) -> list[ViewInput]:
    return [ViewInput(f"First {i}.", following, random.Random(i), ()) for i in range(count)]


@pytest.mark.parametrize("available", [1, 2, 3])
def test_the_next_three_are_drawn_with_equal_probability(available):
    view = OneOfNextSentences(3)
    drawn = view(inputs(FOLLOWING[:available], 600))
    rates = {sentence: drawn.count(sentence) / 600 for sentence in FOLLOWING[:available]}
    assert rates == {sentence: pytest.approx(1 / available, abs=0.07) for sentence in FOLLOWING[:available]}
    assert drawn == view(inputs(FOLLOWING[:available], 600))


RATED = [Crop, WordDeletion, WordRepetition, TokenRepetition, TokenDeletion, TokenInsertion, SpanMasking]


@pytest.mark.parametrize("view", [*RATED, partial(MaskedLanguageModel, "no/such-model")])
@pytest.mark.parametrize("rate", [0, 1.1, -0.1, float("nan")])
def test_a_rate_out_of_range_is_an_error_before_a_model_is_loaded(view, rate):
    with pytest.raises(UserError, match=f"^rate={rate}: it must be above 0 and at most 1$"):
        view(rate=rate)
