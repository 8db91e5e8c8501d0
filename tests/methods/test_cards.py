"""CARDS: which words get the other case."""

import random
import string
from collections import Counter

import pytest

from simcse_pl.data.views.view import ViewInput
from simcse_pl.methods.cards import SwitchCase


def drawn(view, sentence, count):
    return view([ViewInput(sentence, (), random.Random(i), ()) for i in range(count)])


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_each_word_is_switched_with_the_probability(probability):
    """Of the words that begin with a letter; `3D` and a bracket do not."""
    switched_views = drawn(SwitchCase(probability), "Éa bC été  3D (x) YES", 3000)
    switched = {("éa", "Éa"), ("BC", "bC"), ("Été", "été"), ("yES", "YES")}
    counts = Counter(word for one in switched_views for word in one.split())
    assert counts["3D"] == counts["(x)"] == 3000
    assert set(counts) == {"3D", "(x)"} | {word for both in switched for word in both}
    for new, old in switched:
        assert counts[new] + counts[old] == 3000
        assert counts[new] == pytest.approx(3000 * probability, abs=5 * (3000 * probability) ** 0.5)
    together = sum("éa" in one and "BC" in one for one in switched_views)
    assert together == pytest.approx(3000 * probability**2, abs=5 * (3000 * probability**2) ** 0.5)


@pytest.mark.parametrize(("words", "count"), [(1, 1), (4, 1), (10, 1), (16, 2), (30, 3)])
def test_the_fraction_of_words_is_rounded_but_is_at_least_one(words, count):
    """0.1 of all words, 9 included, which does not begin with a letter and is never switched."""
    sentence = " ".join(["9", *string.ascii_lowercase, *"abcd"][:words])
    switched_views = drawn(SwitchCase(0.1, independent=False), sentence, 500)
    assert {sum(letter.isupper() for letter in one) for one in switched_views} == {min(count, words - 1)}
    letters = Counter(letter for one in switched_views for letter in one if letter.isupper())
    mean = 500 * count / (words - 1) if words > 1 else 0
    assert len(set(letters)) == min(words - 1, 26) and all(n > mean / 3 for n in letters.values())
