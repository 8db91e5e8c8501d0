"""Views of whole sentences; every view's configuration."""

import random
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from simcse_pl.data.views.sentences import Dropout, Next3Sentences, NextSentence
from simcse_pl.data.views.view import Original, View
from tests.conftest import ROOT

FOLLOWING = ("Second.", "Third.", "Fourth.")


def originals(following: tuple[str, ...], count: int = 60) -> list[Original]:
    return [Original(f"First {i}.", following, random.Random(i)) for i in range(count)]


def test_dropout_is_the_sentence_itself():
    assert Dropout()([Original("  As it\tis. ", (), random.Random(0))]) == ["  As it\tis. "]
    assert Dropout()([]) == []


@pytest.mark.parametrize("available", [1, 2, 3])
def test_the_next_sentence_is_the_first_that_follows(available):
    assert set(NextSentence()(originals(FOLLOWING[:available]))) == {"Second."}


@pytest.mark.parametrize("available", [1, 2, 3])
def test_the_next_three_are_drawn_from_alike(available):
    drawn = Next3Sentences()(originals(FOLLOWING[:available], 600))
    shares = {sentence: drawn.count(sentence) / 600 for sentence in FOLLOWING[:available]}
    assert shares == {sentence: pytest.approx(1 / available, abs=0.07) for sentence in FOLLOWING[:available]}
    assert drawn == Next3Sentences()(originals(FOLLOWING[:available], 600))


def test_views_say_what_they_need():
    assert {view.__name__: view.following for view in (Dropout, NextSentence, Next3Sentences)} == {
        "Dropout": 0,
        "NextSentence": 1,
        "Next3Sentences": 3,
    }


@pytest.mark.parametrize("path", sorted((ROOT / "conf/views").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_configuration_names_a_view_and_all_its_options(path: Path):
    from inspect import signature

    from hydra.utils import get_class

    options = dict(OmegaConf.load(path))
    view = get_class(options.pop("_target_"))
    assert issubclass(view, View)
    assert set(options) == {name for name in signature(view).parameters if "__init__" in vars(view)}
