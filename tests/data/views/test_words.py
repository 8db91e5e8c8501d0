"""Views of words over many random sentences, and replacing a word within its punctuation."""

import random
import string
from collections import Counter

import pytest

from simcse_pl.data.views.view import SentenceView, ViewInput
from simcse_pl.data.views.words import (
    Crop,
    DeleteOneWord,
    WordDeletion,
    replace_word,
    strip_punctuation,
)
from simcse_pl.methods.cards import SwitchCase
from simcse_pl.methods.esimcse import WordRepetition


def positives(view: SentenceView, sentence: str, count: int) -> list[str]:
    return view([ViewInput(sentence, (), random.Random(i), ()) for i in range(count)])


def test_a_crop_starts_at_every_position_with_equal_probability():
    crops = ("a b c d e f g h", "b c d e f g h i", "c d e f g h i j")
    drawn = positives(Crop(0.2), "a b c d e f g h i j", 900)
    assert Counter(drawn) == {crop: pytest.approx(300, abs=60) for crop in crops}


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
