"""A training set: its views and their roles, labels, next sentences, held-out rows, and options that do not fit."""

import logging
import random

import numpy as np
import pytest
import torch
from tokenizers.normalizers import Lowercase

from simcse_pl.data.training_set import TrainingSet
from simcse_pl.data.views.sentences import Dropout, OneOfNextSentences
from simcse_pl.data.views.view import View
from simcse_pl.data.views.words import Crop
from simcse_pl.methods.cards import SwitchCase
from simcse_pl.methods.esimcse import TokenRepetition, WordRepetition
from simcse_pl.models.roles import Role, default_roles
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

ANCHOR, POSITIVE, NEGATIVE, OTHER = Role
KEYS = [(0, row) for row in range(4)]


@pytest.fixture
def read(tokenizer, tmp_path):
    def make(width=1, last=None, **options):
        """Return a set of six rows of sentences, with a further column of what `last` is."""
        path = tmp_path / "rows.tsv"
        rows = [[SENTENCES[(row + column) % 8] for column in range(width)] for row in range(6)]
        path.write_text("\n".join("\t".join([*row, *cell]) for row, cell in zip(rows, last or [()] * 6, strict=True)))
        own = TrainingSet(path, header=False, **options)
        own.read(tokenizer, 16)
        return own, rows

    return make


@pytest.mark.parametrize(
    ("columns", "options", "roles"),
    [
        (1, {}, None),
        (1, {"views": {"a": Crop(), "b": WordRepetition()}}, (ANCHOR, POSITIVE, POSITIVE)),
        (1, {"views": {"a": Dropout(), "b": Crop(role="negative")}}, None),
        (1, {"views": {"a": Crop(role="negative"), "b": Dropout()}}, (ANCHOR, NEGATIVE, POSITIVE)),
        (1, {"views": {"a": Dropout(role="other")}}, (ANCHOR, OTHER)),
        (3, {"views": {"dropout": Dropout()}}, None),
        (3, {"roles": ["anchor", "positive", "positive"]}, (ANCHOR, POSITIVE, POSITIVE)),
        (3, {"views": {"a": TokenRepetition(role="negative")}}, None),
        (2, {"roles": ["anchor", "other"], "views": {"a": Dropout()}}, (ANCHOR, OTHER, POSITIVE)),
    ],
)
def test_the_roles_are_those_of_the_columns_and_then_of_the_views(read, columns, options, roles):
    own, _ = read(columns, **options)
    batch = own.batch(KEYS)
    views = max(2, len(own.with_views(KEYS)[0]))
    assert batch["roles"] == (roles or default_roles(views))
    assert batch["input_ids"].shape[:2] == (4, views) and len(own.view_roles) == views
    assert "labels" not in batch and "dataset" not in batch


def test_views_are_made_of_the_anchor_and_tokenized(read, tokenizer):
    own, rows = read(2, views={"text": Crop(0.5), "tokens": TokenRepetition(1.0), "same": Dropout()})
    batch = own.batch(KEYS)
    made = own.with_views(KEYS)
    for row, (views, texts) in enumerate(zip(batch["input_ids"], made, strict=True)):
        ids = [own[own != tokenizer.pad_token_id].tolist() for own in views]
        assert ids[0] == tokenizer(rows[row][0], truncation=True, max_length=16)["input_ids"] == ids[4]
        assert ids[1] == tokenizer(rows[row][1], truncation=True, max_length=16)["input_ids"]
        assert texts[2] in " ".join(rows[row][0].split())
        assert ids[2] == tokenizer(texts[2], truncation=True, max_length=16)["input_ids"]
        assert list(dict.fromkeys(ids[3])) == list(dict.fromkeys(ids[0])) and len(ids[3]) >= len(ids[0])
        assert batch["attention_mask"][row].sum(dim=-1).tolist() == [len(view) for view in ids]


@pytest.mark.parametrize("cased", [False, True])
def test_a_view_that_switches_case_warns_of_an_uncased_tokenizer(read, tokenizer, cased, caplog):
    tokenizer.backend_tokenizer.normalizer = None if cased else Lowercase()
    own, _ = read(1, views={"switch_case": SwitchCase(1.0), "crop": Crop()})
    anchor, switched, _ = own.batch([(0, 0)])["input_ids"][0]
    assert anchor.equal(switched) != cased
    assert ("SwitchCase changes nothing, because the tokenizer ignores case" in caplog.text) != cased


def test_scores_are_the_float32_of_the_text(read):
    texts = ["0.1", "4.999999999", "-3", "1e-7", "16777217", "3.4028234e38"]
    own, _ = read(2, [[text] for text in texts], score_column=2)
    labels = own.batch([(0, row) for row in range(6)])["labels"]
    assert own.labels == "scores" and labels.dtype == torch.float32
    assert own.label_range == (-3.0, 3.4028234e38)
    assert labels.numpy().tobytes() == np.array([np.float32(text) for text in texts]).tobytes()


@pytest.mark.parametrize("cell", ["good", "nan", "1e39", "0,5"])
def test_a_score_that_is_no_finite_number_is_an_error_with_its_line(read, cell):
    scores = [["0.5"], ["0.5"], [cell], ["1"], ["1"], ["1"]]
    message = f"rows.tsv, line 3: column 2 holds '{cell}', not a finite number"
    with pytest.raises(UserError, match=f"{message} .data.on_invalid_row=drop"):
        read(2, scores, score_column=2)
    own, _ = read(2, scores, score_column=2, on_invalid_row="drop")
    assert len(own.chosen) == 5


@pytest.mark.parametrize(
    ("columns", "options"),
    [(1, {"views": {"a": Crop(role="anchor")}}), (2, {"roles": ["anchor", "anchor"]}), (2, {"roles": ["anchor"]})],
)
def test_roles_that_do_not_fit_are_an_error(read, columns, options):
    with pytest.raises(UserError, match="^data.roles=.* needs a role, and the first is the anchor$"):
        read(columns, **options)


def test_held_out_rows_are_not_trained_on(read):
    whole, _ = read(2, hold_out=0.34)
    assert len(whole.held_out) == 2 and sorted([*whole.chosen, *whole.held_out]) == list(range(6))
    assert read(2, hold_out=0.34)[0].held_out == whole.held_out
    for limit in (2, 3):
        limited = read(2, hold_out=0.34, limit=limit)[0]
        assert limited.held_out == whole.held_out and set(limited.chosen) < set(whole.chosen)
    batch = whole.batch([(0, 0), (0, 1)], held_out=True)
    expected = TrainingSet.batch(read(2)[0], [(0, place) for place in whole.held_out])
    assert all(batch[name].equal(tensor) for name, tensor in expected.items() if name != "roles")


def test_a_copy_in_another_format_is_read_in_its_own_way(tokenizer, tmp_path):
    for name, width in (("a.txt", 1), ("a.tsv", 2)):
        (tmp_path / name).write_text("first\tsecond\nOne sentence.\tAnother.\nTwo.\tMore.\n")
        dataset = TrainingSet(tmp_path / name)
        dataset.read(tokenizer, 16)
        assert len(dataset.rows[0]) == width


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
