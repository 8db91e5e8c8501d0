"""Every view depends on its row and its generator alone; what the views of words and of next sentences draw."""

import contextlib
import random
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch

from simcse_pl.data.documents import OneOfNextSentences
from simcse_pl.data.view import ViewInput
from simcse_pl.data.words import icu, replace_word, strip_punctuation
from simcse_pl.methods.arccse import SpanMasking
from simcse_pl.methods.augmentations import Crop, DeleteOneWord, MaskedLanguageModel, WordDeletion
from simcse_pl.methods.cards import SwitchCase
from simcse_pl.methods.declutr import Spans
from simcse_pl.methods.esimcse import TokenRepetition, WordRepetition
from simcse_pl.methods.sncse import Negation
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

NEXT = ("Second.", "Third.", "Fourth.")
WORDS = {"crop": partial(Crop, 0.3), "deletion": partial(WordDeletion, 0.3), "one": DeleteOneWord}
VIEWS = WORDS | {
    "next": partial(OneOfNextSentences, 3),
    "switch_case": partial(SwitchCase, 0.3),
    "words": WordRepetition,
    "tokens": TokenRepetition,
    "spans": partial(SpanMasking, 0.3),
    "declutr": partial(Spans, 2, 1, 3, 6),
    "mlm": partial(MaskedLanguageModel, rate=0.3, segment=icu),
}


def inputs(sentences, epoch=0):
    return [
        ViewInput(sentence, NEXT, random.Random(f"{epoch}-{row}"), np.arange(2, 14), mask=4)
        for row, sentence in enumerate(sentences)
    ]


def listed(views):
    return [getattr(view, "tolist", lambda view=view: view)() for view in views]


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_depends_on_its_row_and_its_generator_alone(name, make_masked_language_model):
    view = VIEWS[name](*[str(make_masked_language_model("bert", initializer_range=0.5))] * (name == "mlm"))
    states = random.getstate(), torch.get_rng_state()
    together = listed(view(inputs(SENTENCES)))
    assert [listed(view([own]))[0] for own in inputs(SENTENCES)] == together
    assert listed(view(inputs(SENTENCES, epoch=1))) != together
    assert random.getstate() == states[0] and torch.equal(torch.get_rng_state(), states[1])


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("sentence", ["", "one", "a b c d e f g h i j"])
def test_words_are_removed_in_order_and_one_is_kept(name, sentence):
    words = sentence.split()
    left = max(min(1, len(words)), len(words) - (1 if name == "one" else round(0.3 * len(words))))
    for view in VIEWS[name]()(inputs([sentence] * 20)):
        assert sorted(view.split()) == view.split() and set(view.split()) <= set(words)
        assert len(view.split()) == left


@pytest.mark.parametrize(
    ("view", "drawn"),
    [(Crop(0.2), ("a b c d e f g h", "b c d e f g h i", "c d e f g h i j")), (OneOfNextSentences(3), NEXT)],
)
def test_positions_and_next_sentences_have_equal_probability(view, drawn):
    assert Counter(view(inputs(["a b c d e f g h i j"] * 900))) == {own: pytest.approx(300, abs=60) for own in drawn}


@pytest.mark.parametrize(
    ("word", "within", "replaced"),
    [
        ("dog", "dog", "hound"),
        ("(Dog,", "Dog", "(Hound,"),
        ("don't.", "don't", "hound."),
        ("Élan…", "Élan", "Hound…"),
        ("नहीं,", "नहीं", "hound,"),  # ends in marks
        ("...", "", "...hound"),
    ],
)
def test_a_replaced_word_keeps_punctuation_and_capitals(word, within, replaced):
    assert strip_punctuation(word) == within
    assert replace_word(word, "hound") == replaced


@pytest.mark.parametrize(
    ("sentences", "english"),
    [
        (["一架飞机正在起飞。"] * 40, False),
        (["Ein Mann spielt Gitarre und singt."] * 39 + ["Er hört the Beatles."], False),
        (["Obama visits Kenya."] * 20 + ["Floods hit the coast."], True),
    ],
)
def test_text_of_another_language_is_an_error(sentences, english):
    with contextlib.nullcontext() if english else pytest.raises(UserError, match="it is made for English"):
        Negation().check_text(sentences)
