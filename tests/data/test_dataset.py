"""The training dataset: positives, labels, next sentences and the limit."""

import logging
import random

import pytest

from simcse_pl.data.dataset import TrainingDataset
from simcse_pl.data.views.sentences import OneOfNextSentences
from simcse_pl.data.views.view import View
from simcse_pl.utils.errors import UserError

ROWS = [(f"sentence {i}",) for i in range(10)]
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


def positives(rows, keys):
    return [row[1] for row in rows[keys]]


def test_a_positive_depends_on_the_seed_the_epoch_and_the_row_only():
    keys = [(epoch, row) for epoch in range(3) for row in range(10)]
    together = positives(TrainingDataset(ROWS, Numbered(), seed=1), keys)
    rows = TrainingDataset(ROWS, Numbered(), seed=1)
    random.seed(5)  # the global generator does not matter
    alone = [positives(rows, [key])[0] for key in reversed(keys)][::-1]
    assert together == alone
    chances = [positive.split()[2] for positive in together]
    assert len(set(chances)) == 30
    other_seed = positives(TrainingDataset(ROWS, Numbered(), seed=2), keys)
    assert not set(chances) & {positive.split()[2] for positive in other_seed}


def test_labels_are_numbered_in_alphabetical_order():
    labels = ["neutral", "entailment", "contradiction", "entailment"]
    pairs = [(f"premise {i}", f"hypothesis {i}") for i in range(4)]
    rows = TrainingDataset(pairs, labels=labels)
    assert rows.classes == ["contradiction", "entailment", "neutral"]
    assert rows[[(0, i) for i in range(4)]] == list(zip(pairs, [2, 1, 0, 1], strict=True))
    few = TrainingDataset(pairs, labels=labels, limit=1)
    assert few.classes == rows.classes  # the same numbers with any draw
    assert few[[(0, 0)]] == rows[[(0, few.chosen[0])]]


@pytest.mark.parametrize("limit", [1, 4, 10])
def test_a_limit_draws_rows_with_the_seed_and_keeps_their_order(limit):
    def drawn(seed):
        rows = TrainingDataset(ROWS, limit=limit, seed=seed)
        return rows.__getitem__([(0, i) for i in range(len(rows))])

    assert len(drawn(1)) == limit
    assert drawn(1) == [row for row in ROWS if row in drawn(1)] == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(20)}) > 1 or limit == len(ROWS)


@pytest.mark.parametrize("limit", [0, -1, 11])
def test_a_limit_out_of_range_is_an_error_with_the_number_of_rows(limit):
    with pytest.raises(UserError, match=rf"^data.limit={limit}: it must be 1 to 10, the number of rows$"):
        TrainingDataset(ROWS, limit=limit)


def test_up_to_three_following_sentences_of_the_same_document(caplog):
    with caplog.at_level(logging.INFO):
        rows = TrainingDataset(ROWS, Following(), documents=DOCUMENTS)
    assert caplog.messages == ["train: 4 of 10 sentences are left out, the last of their documents"]
    numbers = ["1|2|3", "2|3|4", "3|4", "4", "7", "9"]
    expected = ["|".join(f"sentence {i}" for i in following.split("|")) for following in numbers]
    batch = rows.__getitem__([(0, i) for i in range(len(rows))])
    assert [row[0] for row in batch] == [f"sentence {i}" for i in (0, 1, 2, 3, 6, 8)]
    assert [row[1] for row in batch] == expected


def test_a_limit_draws_among_the_rows_with_a_next_sentence():
    view = OneOfNextSentences(3)
    rows = TrainingDataset(ROWS, view, documents=DOCUMENTS, limit=5)
    for epoch in range(5):
        for sentence, positive in rows[[(epoch, i) for i in range(5)]]:
            own, after = (int(text.split()[1]) for text in (sentence, positive))
            assert 1 <= after - own <= 3 and DOCUMENTS[own] == DOCUMENTS[after]
    with pytest.raises(UserError, match="data.limit=7: it must be 1 to 6"):
        TrainingDataset(ROWS, view, documents=DOCUMENTS, limit=7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"documents": list("abcdefghij")}, "data.train: no sentence has a next one in its document"),
        ({"labels": ["yes"] * 10}, "data.label_column: all rows have the label yes"),
    ],
)
def test_rows_without_a_contrast_are_an_error(options, message):
    with pytest.raises(UserError, match=message) as error:
        TrainingDataset(ROWS, **options)
    assert "\n" not in str(error.value)
