"""Views of whole sentences."""

import random

import pytest

from simcse_pl.data.views.sentences import OneOfNextSentences
from simcse_pl.data.views.view import ViewInput

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
