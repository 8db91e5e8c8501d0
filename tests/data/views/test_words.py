"""Views of words over many random sentences, and replacing a word within its punctuation."""

import random
import string
from collections import Counter

import pytest

from simcse_pl.data.views.view import SentenceView, ViewInput
from simcse_pl.data.views.words import (
    Crop,
    DeleteOneWord,
    SwitchCase,
    WordDeletion,
    WordRepetition,
    replace_word,
    strip_punctuation,
)


def positives(view: SentenceView, sentence: str, count: int) -> list[str]:
    return view([ViewInput(sentence, (), random.Random(i), ()) for i in range(count)])


def test_a_crop_starts_at_every_position_with_equal_probability():
    crops = ("a b c d e f g h", "b c d e f g h i", "c d e f g h i j")
    drawn = positives(Crop(0.2), "a b c d e f g h i j", 900)
    assert Counter(drawn) == {crop: pytest.approx(300, abs=60) for crop in crops}


def test_deletion_removes_every_word_with_equal_probability():
    deleted = Counter()
    for positive in positives(WordDeletion(0.3), "a b c d e f g h i j", 1000):
        deleted.update(set("abcdefghij") - set(positive.split()))
    assert deleted == {letter: pytest.approx(300, abs=60) for letter in "abcdefghij"}


@pytest.mark.parametrize(("length", "most"), [(2, 1), (3, 2), (6, 2), (12, 3), (20, 6)])
def test_every_number_of_repetitions_up_to_esimcses_has_equal_probability(length, most):
    repeated = positives(WordRepetition(), " ".join(string.ascii_letters[:length]), 2000)
    added = Counter(len(positive.split()) - length for positive in repeated)
    expected = 2000 / (most + 1)
    assert added == {count: pytest.approx(expected, abs=5 * expected**0.5) for count in range(most + 1)}


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_each_word_is_switched_with_the_probability(probability):
    """Of the words that begin with a letter; `3D` and a bracket do not."""
    drawn = positives(SwitchCase(probability), "Éa bC été  3D (x) YES", 3000)
    switched = {("éa", "Éa"), ("BC", "bC"), ("Été", "été"), ("yES", "YES")}
    counts = Counter(word for one in drawn for word in one.split())
    assert counts["3D"] == counts["(x)"] == 3000
    assert set(counts) == {"3D", "(x)"} | {word for both in switched for word in both}
    for new, old in switched:
        assert counts[new] + counts[old] == 3000
        assert counts[new] == pytest.approx(3000 * probability, abs=5 * (3000 * probability) ** 0.5)
    together = sum("éa" in one and "BC" in one for one in drawn)
    assert together == pytest.approx(3000 * probability**2, abs=5 * (3000 * probability**2) ** 0.5)


@pytest.mark.parametrize(("words", "count"), [(1, 1), (4, 1), (10, 1), (16, 2), (30, 3)])
def test_the_fraction_of_words_is_rounded_but_is_at_least_one(words, count):
    """0.1 of all words, 9 included, which does not begin with a letter and is never switched."""
    sentence = " ".join(["9", *string.ascii_lowercase, *"abcd"][:words])
    drawn = positives(SwitchCase(0.1, independent=False), sentence, 500)
    assert {sum(letter.isupper() for letter in one) for one in drawn} == {min(count, words - 1)}
    letters = Counter(letter for one in drawn for letter in one if letter.isupper())
    mean = 500 * count / (words - 1) if words > 1 else 0
    assert len(set(letters)) == min(words - 1, 26) and all(n > mean / 3 for n in letters.values())


@pytest.mark.parametrize("view", [Crop(0.3), WordDeletion(0.3), DeleteOneWord(), WordRepetition(), SwitchCase(0.3)])
def test_a_positive_depends_on_the_given_generator_only(view):
    before = random.getstate()
    sentence = " ".join(string.ascii_letters)
    once = positives(view, sentence, 20)
    assert positives(view, sentence, 20) == once and len(set(once)) > 5
    assert random.getstate() == before


@pytest.mark.parametrize("view", [Crop(0.3), WordDeletion(0.3), DeleteOneWord(), WordRepetition()])
@pytest.mark.parametrize("sentence", ["", "one"])
def test_a_sentence_of_no_word_or_one_stays_as_it_is(view, sentence):
    assert positives(view, sentence, 5) == [sentence] * 5


@pytest.mark.parametrize(
    ("word", "within", "replaced"),
    [
        ("dog", "dog", "hound"),
        ("(Dog,", "Dog", "(Hound,"),
        ("don't.", "don't", "hound."),
        ("1998.", "1998", "hound."),
        ("Élan…", "Élan", "Hound…"),
        ("a\u2028b", "a\u2028b", "hound"),
        ("...", "", "...hound"),
    ],
)
def test_punctuation_and_capitals_are_kept(word, within, replaced):
    assert strip_punctuation(word) == within
    assert replace_word(word, "hound") == replaced


def test_capitals_of_the_new_word_are_kept():
    assert replace_word("dog", "Canis familiaris") == "Canis familiaris"
