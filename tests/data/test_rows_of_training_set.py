"""The rows of a training set: views, labels, next sentences and the limit."""

import logging
import random

import numpy as np
import pytest

from simcse_pl.data.views.sentences import OneOfNextSentences
from simcse_pl.data.views.view import View
from simcse_pl.utils.errors import UserError

ROWS = [(f"sentence {i}",) for i in range(10)]
TOKENS = [(np.array([2, i, 3]),) for i in range(10)]
DOCUMENTS = ["a", "a", "a", "a", "a", "b", "c", "c", "d", "d"]  # five rows, one, two and two


class Numbered(View):
    """The sentence with two random numbers."""

    def __call__(self, inputs):
        return [f"{own.sentence} {own.random.random()} {own.random.random()}" for own in inputs]


class Following(View):
    """The next three sentences."""

    num_following = 3

    def __call__(self, inputs):
        return ["|".join(own.following) for own in inputs]


def positives(own, keys):
    return [row[1] for row in own.with_views(keys)]


def test_a_positive_depends_on_the_seed_the_epoch_and_the_row_only(given_rows):
    keys = [(epoch, row) for epoch in range(3) for row in range(10)]
    together = positives(given_rows(ROWS, TOKENS, [Numbered()], seed=1), keys)
    rows = given_rows(ROWS, TOKENS, [Numbered()], seed=1)
    random.seed(5)  # the global generator does not matter
    alone = [positives(rows, [key])[0] for key in reversed(keys)][::-1]
    assert together == alone
    chances = [positive.split()[2] for positive in together]
    assert len(set(chances)) == 30
    other_seed = positives(given_rows(ROWS, TOKENS, [Numbered()], seed=2), keys)
    assert not set(chances) & {positive.split()[2] for positive in other_seed}


def test_a_single_view_draws_from_the_seed_the_epoch_and_the_row(given_rows):
    """Scores of earlier versions depend on it."""
    (positive,) = positives(given_rows(ROWS, TOKENS, [Numbered()], seed=1), [(2, 5)])
    draw = random.Random("1-2-5")
    assert positive == f"sentence 5 {draw.random()} {draw.random()}"


def test_a_view_that_is_made_once_is_that_of_the_first_epoch_in_all_epochs(given_rows):
    class Once(Numbered):
        once = True

    rows = given_rows(ROWS, TOKENS, [Numbered(), Once()], seed=1)
    drawn = [[row[1:] for row in rows.with_views([(epoch, row) for row in range(10)])] for epoch in range(3)]
    alone = given_rows(ROWS, TOKENS, [Numbered(), Numbered()], seed=1).with_views([(0, row) for row in range(10)])
    for epoch in drawn:
        assert [once for _, once in epoch] == [again for *_, again in alone]
    assert len({each for epoch in drawn for each, _ in epoch}) == 30


def test_up_to_three_following_sentences_of_the_same_document(given_rows, caplog):
    with caplog.at_level(logging.INFO):
        rows = given_rows(ROWS, ROWS, [Following()], DOCUMENTS)
    assert caplog.messages[:1] == ["train: 4 of 10 sentences are left out, because no sentence follows them"]
    numbers = ["1|2|3", "2|3|4", "3|4", "4", "7", "9"]
    expected = ["|".join(f"sentence {i}" for i in following.split("|")) for following in numbers]
    batch = rows.with_views([(0, i) for i in range(len(rows.chosen))])
    assert [row[0] for row in batch] == [f"sentence {i}" for i in (0, 1, 2, 3, 6, 8)]
    assert [row[1] for row in batch] == expected


def test_a_limit_draws_among_the_rows_with_a_next_sentence(given_rows):
    view = OneOfNextSentences(3)
    rows = given_rows(ROWS, ROWS, [view], DOCUMENTS, limit=5)
    for epoch in range(5):
        for sentence, positive in rows.with_views([(epoch, i) for i in range(5)]):
            own, after = (int(text.split()[1]) for text in (sentence, positive))
            assert 1 <= after - own <= 3 and DOCUMENTS[own] == DOCUMENTS[after]
    with pytest.raises(UserError, match="data.limit=7: there are 6 rows"):
        given_rows(ROWS, ROWS, [view], DOCUMENTS, limit=7)


def test_one_class_is_an_error(given_rows):
    with pytest.raises(UserError, match="data.label_column: all rows have the label yes"):
        given_rows(ROWS, ROWS, names=["yes"] * 10, label_column=1)
