"""CARDS: which words get the other case."""

import random
import string
from collections import Counter

import pytest

from simcse_pl.data.view import ViewInput
from simcse_pl.methods.cards import SwitchCase


def drawn(view, sentence, count):
    return view([ViewInput(sentence, (), random.Random(i), ()) for i in range(count)])


def test_each_word_is_switched_with_the_probability():
    """Of the words that begin with a letter; `3D` and a bracket do not."""
    counts = Counter(word for view in drawn(SwitchCase(0.1), "Éa bC été  3D (x)", 3000) for word in view.split())
    assert counts["3D"] == counts["(x)"] == 3000
    for new, old in (("éa", "Éa"), ("BC", "bC"), ("Été", "été")):
        assert counts[new] + counts[old] == 3000 and counts[new] == pytest.approx(300, abs=90)


@pytest.mark.parametrize(("words", "count"), [(1, 1), (4, 1), (16, 2), (30, 3)])
def test_the_fraction_of_words_is_rounded_but_is_at_least_one(words, count):
    """0.1 of all words, 9 included, which does not begin with a letter and is never switched."""
    sentence = " ".join(["9", *string.ascii_lowercase, *"abcd"][:words])
    views = drawn(SwitchCase(0.1, independent=False), sentence, 500)
    assert {sum(letter.isupper() for letter in view) for view in views} == {min(count, words - 1)}
    letters = {letter for view in views for letter in view if letter.isupper()}
    assert len(letters) == min(words - 1, 26)
