"""The training dataset: views, labels, next sentences and the limit."""

import logging
import random

import numpy as np
import pytest

from simcse_pl.data.dataset import TrainingDataset
from simcse_pl.data.views.sentences import OneOfNextSentences
from simcse_pl.data.views.view import TokenView, View
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


class Reversed(TokenView):
    """The tokens in another order, and a random one before the last."""

    def make(self, own):
        return np.array([*own.tokens[:-1], 1000 + own.random.randrange(1000), own.tokens[-1]])


def positives(rows, keys):
    return [row[1] for row in rows[keys]]


def test_a_positive_depends_on_the_seed_the_epoch_and_the_row_only():
    keys = [(epoch, row) for epoch in range(3) for row in range(10)]
    together = positives(TrainingDataset(ROWS, TOKENS, [Numbered()], seed=1), keys)
    rows = TrainingDataset(ROWS, TOKENS, [Numbered()], seed=1)
    random.seed(5)  # the global generator does not matter
    alone = [positives(rows, [key])[0] for key in reversed(keys)][::-1]
    assert together == alone
    chances = [positive.split()[2] for positive in together]
    assert len(set(chances)) == 30
    other_seed = positives(TrainingDataset(ROWS, TOKENS, [Numbered()], seed=2), keys)
    assert not set(chances) & {positive.split()[2] for positive in other_seed}


def test_a_single_view_draws_from_the_seed_the_epoch_and_the_row():
    """Scores of earlier versions depend on it."""
    ((_, positive),) = TrainingDataset(ROWS, TOKENS, [Numbered()], seed=1)[[(2, 5)]]
    draw = random.Random("1-2-5")
    assert positive == f"sentence 5 {draw.random()} {draw.random()}"


def test_a_view_that_is_made_once_is_that_of_the_first_epoch_in_all_epochs():
    class Once(Numbered):
        once = True

    rows = TrainingDataset(ROWS, TOKENS, [Numbered(), Once()], seed=1)
    drawn = [[row[1:] for row in rows[[(epoch, row) for row in range(10)]]] for epoch in range(3)]
    alone = TrainingDataset(ROWS, TOKENS, [Numbered(), Numbered()], seed=1)[[(0, row) for row in range(10)]]
    for epoch in drawn:
        assert [once for _, once in epoch] == [again for *_, again in alone]
    assert len({each for epoch in drawn for each, _ in epoch}) == 30


def test_several_views_draw_independently_and_follow_the_columns():
    pairs = [(f"sentence {i}", f"other {i}") for i in range(10)]
    tokens = [(np.array([2, i, 3]), np.array([2, 100 + i, 3])) for i in range(10)]
    keys = [(epoch, row) for epoch in range(2) for row in range(10)]
    rows = TrainingDataset(pairs, tokens, [Numbered(), Reversed(), Numbered()], seed=1)[keys]
    alone = TrainingDataset(pairs, tokens, [Numbered()], seed=1)[keys]
    for (_, place), (anchor, other, first, second, third), (*_, single) in zip(keys, rows, alone, strict=True):
        assert (anchor.tolist(), other.tolist()) == ([2, place, 3], [2, 100 + place, 3])
        assert first == single and first.startswith(f"sentence {place} ") and third.startswith(f"sentence {place} ")
        assert first != third
        assert [second[0], second[1], second[3]] == [2, place, 3]
    assert len({int(row[3][2]) for row in rows}) > 10


def test_a_view_with_too_many_tokens_is_an_error():
    rows = TrainingDataset(ROWS, TOKENS, [Reversed()], longest=3)
    with pytest.raises(UserError, match="^data.views: Reversed made a view of 4 tokens, but this model reads 3: "):
        rows[[(0, 1)]]


def test_labels_are_numbered_in_alphabetical_order():
    labels = ["neutral", "entailment", "contradiction", "entailment"]
    pairs = [(f"premise {i}", f"hypothesis {i}") for i in range(4)]
    tokens = [(i, 10 + i) for i in range(4)]
    rows = TrainingDataset(pairs, tokens, labels=labels)
    assert rows.classes == ["contradiction", "entailment", "neutral"]
    assert rows[[(0, i) for i in range(4)]] == list(zip(tokens, [2, 1, 0, 1], strict=True))
    few = TrainingDataset(pairs, tokens, labels=labels, limit=1)
    assert few.classes == rows.classes  # the same numbers with any draw
    assert few[[(0, 0)]] == rows[[(0, few.chosen[0])]]


def test_scores_are_floats_in_the_order_of_the_rows():
    rows = TrainingDataset(ROWS[:3], TOKENS[:3], labels=["0.1", "-3", "1e-7"], scores=True)
    assert [score for _, score in rows[[(0, i) for i in range(3)]]] == [0.1, -3.0, 1e-7]
    assert rows.classes == []


@pytest.mark.parametrize("limit", [1, 4, 10])
def test_a_limit_draws_rows_with_the_seed_and_keeps_their_order(limit):
    def drawn(seed):
        rows = TrainingDataset(ROWS, ROWS, limit=limit, seed=seed)
        return rows.__getitem__([(0, i) for i in range(len(rows))])

    assert len(drawn(1)) == limit
    assert drawn(1) == [row for row in ROWS if row in drawn(1)] == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(20)}) > 1 or limit == len(ROWS)


def test_up_to_three_following_sentences_of_the_same_document(caplog):
    with caplog.at_level(logging.INFO):
        rows = TrainingDataset(ROWS, ROWS, [Following()], documents=DOCUMENTS)
    assert caplog.messages == ["train: 4 of 10 sentences are left out, because no sentence follows them"]
    numbers = ["1|2|3", "2|3|4", "3|4", "4", "7", "9"]
    expected = ["|".join(f"sentence {i}" for i in following.split("|")) for following in numbers]
    batch = rows.__getitem__([(0, i) for i in range(len(rows))])
    assert [row[0] for row in batch] == [f"sentence {i}" for i in (0, 1, 2, 3, 6, 8)]
    assert [row[1] for row in batch] == expected


def test_a_limit_draws_among_the_rows_with_a_next_sentence():
    view = OneOfNextSentences(3)
    rows = TrainingDataset(ROWS, ROWS, [view], documents=DOCUMENTS, limit=5)
    for epoch in range(5):
        for sentence, positive in rows[[(epoch, i) for i in range(5)]]:
            own, after = (int(text.split()[1]) for text in (sentence, positive))
            assert 1 <= after - own <= 3 and DOCUMENTS[own] == DOCUMENTS[after]
    with pytest.raises(UserError, match="data.limit=7: it must be 1 to 6"):
        TrainingDataset(ROWS, ROWS, [view], documents=DOCUMENTS, limit=7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"documents": list("abcdefghij")}, "data.train: this view needs the next sentence, and no document has two"),
        ({"labels": ["yes"] * 10}, "data.label_column: all rows have the label yes"),
    ],
)
def test_rows_without_a_contrast_are_an_error(options, message):
    with pytest.raises(UserError, match=message):
        TrainingDataset(ROWS, ROWS, **options)
