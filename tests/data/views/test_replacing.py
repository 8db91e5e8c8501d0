"""Putting another word in a word's place."""

import pytest

from simcse_pl.data.views.replacing import bare, replace


@pytest.mark.parametrize(
    ("word", "within", "replaced"),
    [
        ("dog", "dog", "hound"),
        ("Dog", "Dog", "Hound"),
        ("(dog,", "dog", "(hound,"),
        ('"Dog!?"', "Dog", '"Hound!?"'),
        ("don't.", "don't", "hound."),
        ("1998.", "1998", "hound."),
        ("Élan…", "Élan", "Hound…"),
        ("a\u2028b", "a\u2028b", "hound"),
    ],
)
def test_punctuation_and_capitals_stay(word, within, replaced):
    assert bare(word) == within
    assert replace(word, "hound") == replaced


@pytest.mark.parametrize("word", ["", "-", "...", "🙂"])
def test_what_is_no_word_is_bare_of_anything(word):
    assert bare(word) == ""


def test_capitals_of_what_is_new_stay():
    assert replace("dog", "Canis familiaris") == "Canis familiaris"
    assert replace("Dog", "") == ""


def test_a_long_word_takes_no_longer_than_its_length():
    long = "a" + "-" * 1_000_000 + "b"
    assert bare(f"({long})") == long  # the square of it would be hours
