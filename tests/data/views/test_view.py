"""Views of whole sentences; every view's configuration."""

import random
from inspect import signature
from pathlib import Path

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from simcse_pl.data.views.sentences import Dropout, OneOfNextSentences
from simcse_pl.data.views.view import View, ViewInput
from tests.conftest import ROOT

FOLLOWING = ("Second.", "Third.", "Fourth.")


def inputs(following: tuple[str, ...], count: int = 60) -> list[ViewInput]:
    return [ViewInput(f"First {i}.", following, random.Random(i), ()) for i in range(count)]


def test_dropout_is_the_tokens_of_the_sentence():
    assert Dropout()([ViewInput("As it is.", (), random.Random(0), (2, 7, 3))]) == [(2, 7, 3)]
    assert Dropout().num_following == 0


def test_one_of_one_is_the_next_sentence():
    view = OneOfNextSentences(1)
    assert view.num_following == 1
    assert set(view(inputs(FOLLOWING[:1]))) == {"Second."}


@pytest.mark.parametrize("available", [1, 2, 3])
def test_the_next_three_are_drawn_with_equal_probability(available):
    view = OneOfNextSentences(3)
    drawn = view(inputs(FOLLOWING[:available], 600))
    rates = {sentence: drawn.count(sentence) / 600 for sentence in FOLLOWING[:available]}
    assert rates == {sentence: pytest.approx(1 / available, abs=0.07) for sentence in FOLLOWING[:available]}
    assert drawn == view(inputs(FOLLOWING[:available], 600))


@pytest.mark.parametrize("path", sorted((ROOT / "conf/views").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_configuration_names_a_view_and_all_its_options(path: Path):
    assert path.read_text().startswith(f"# @package views.{path.stem}\n")
    options = dict(OmegaConf.load(path))
    view = get_class(options.pop("_target_"))
    assert issubclass(view, View)
    assert set(options) == signature(view).parameters.keys() - {"args", "kwargs"}
