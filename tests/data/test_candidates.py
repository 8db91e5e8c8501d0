"""Rows with any number of positives and hard negatives: how they are read, and what is drawn."""

import json
import math
from collections import Counter
from itertools import product

import datasets
import pytest
import torch

from simcse_pl.data.candidates import draw_candidates
from simcse_pl.data.training_set import TrainingSet
from simcse_pl.data.view import View
from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.methods.cot_bert import ContrastedPositives
from simcse_pl.methods.promcse import EnergyHinge
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Role

ANCHOR, POSITIVE, NEGATIVE, OTHER = Role
# as FlagEmbedding has them: all words are in the vocabulary
ROWS = [
    {
        "query": f"a man{' !' * row}",
        "pos": [f"the street{' !' * row}{' a' * i}" for i in range(1 + row % 3)],
        "neg": [f"the dogs{' !' * row}{' a' * i}" for i in range(row % 4)],
    }
    for row in range(12)
]


class LongView(View):
    """The same long sentence for each row."""

    def __call__(self, inputs):
        return ["the street ! ! ! ! !"] * len(inputs)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)))
    return file


def texts(tokenizer, batch):
    return [tokenizer.batch_decode(views, skip_special_tokens=True) for views in batch["input_ids"]]


def test_a_batch_has_as_many_sentences_of_each_role_as_are_asked_for(path, tokenizer):
    rows = TrainingSet(path, negatives=2, positives=2).read(tokenizer, 32)
    batch = rows.batch([(0, row) for row in range(12)])
    assert batch["roles"] == (ANCHOR, POSITIVE, POSITIVE, NEGATIVE, NEGATIVE) and rows.columns == (0, *[None] * 4)
    for own, drawn, copies in zip(ROWS, texts(tokenizer, batch), batch["copies"].tolist(), strict=True):
        assert drawn[0] == own["query"] and {*drawn[1:3]} <= {*own["pos"]}
        assert {*drawn[3:]} <= {*(own["neg"] or own["pos"])}
        assert len({*drawn[1:3]}) == min(2, len(own["pos"]))
        assert not own["neg"] or len({*drawn[3:]}) == min(2, len(own["neg"]))
        assert copies == [False, *(text in drawn[1 : 1 + i] for i, text in enumerate(drawn[1:]))]


@pytest.mark.parametrize(
    ("max_length", "expected"),
    [
        ([4, 6, 5], (4, 6, 5)),
        ({Role.NEGATIVE: 5, Role.ANCHOR: 4, Role.POSITIVE: 6}, (4, 6, 5)),
        ({Role.ANCHOR: 4, Role.POSITIVE: 6}, (4, 6, 6)),
    ],
)
def test_each_role_has_its_own_length(max_length, expected, tmp_path, tokenizer):
    text = "a man ! ! ! ! !"
    row = {"query": text, "pos": [f"{text} {'a ' * i}" for i in range(3)], "neg": [f"{text} the", f"{text} street"]}
    (tmp_path / "rows.jsonl").write_text("\n".join([json.dumps(row)] * 2))
    rows = TrainingSet(tmp_path / "rows.jsonl", positives=2, negatives=2).read(tokenizer, max_length)
    anchor, positive, negative = expected
    assert [len(ids) for ids in rows.cache.tokens(0)] == [anchor, *[positive] * 3, *[negative] * 2]
    lengths = rows.batch([(0, 0)])["attention_mask"].sum(dim=-1).tolist()
    assert lengths == [[anchor, *[positive] * 2, *[negative] * 2]]


def test_roles_of_columns_and_views_have_their_length(tmp_path, tokenizer):
    (tmp_path / "rows.csv").write_text("a man ! ! ! !,a man ! ! ! ! a,a man ! ! ! ! the\n" * 2)
    given = {"header": False, "roles": [ANCHOR, NEGATIVE, POSITIVE], "views": LongView(NEGATIVE)}
    rows = TrainingSet(tmp_path / "rows.csv", **given).read(tokenizer, {ANCHOR: 4, POSITIVE: 6, NEGATIVE: 5})
    assert rows.batch([(0, 0)])["attention_mask"].sum(dim=-1).tolist() == [[4, 5, 6, 5]]


def test_every_sentence_of_a_row_is_drawn_equally_often():
    drawn = Counter(tuple(draw_candidates(6, 2, (1, 2), f"{epoch}")) for epoch in range(6000))
    assert {*drawn} == {(0, p, a, b) for p, a, b in product((1, 2), (3, 4, 5), (3, 4, 5)) if a != b}
    assert all(400 < times < 600 for times in drawn.values())  # of 500, over 4 standard deviations


def test_enough_places_have_all_candidates_once():
    drawn = draw_candidates(6, 2, (3, 7), "")
    assert Counter(drawn[1:4]) in (Counter({1: 2, 2: 1}), Counter({1: 1, 2: 2}))
    assert {*drawn[4:7]} == {3, 4, 5} and drawn[7:] == [*drawn[4:7], drawn[4]]


def of_columns(rows):
    """Return the columns of a table whose cells may be empty."""
    return {
        "query": [row["query"] for row in rows],
        **{f"pos{i}": [(row["pos"][i:] or [None])[0] for row in rows] for i in range(3)},
        **{f"neg{i}": [(row["neg"][i:] or [None])[0] for row in rows] for i in range(3)},
    }


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "folder"])
def test_lists_and_columns_with_empty_cells_are_the_same_rows(name, path, tokenizer, tmp_path):
    as_columns = of_columns(ROWS)
    roles = [ANCHOR, *[POSITIVE] * 3, *[NEGATIVE] * 3]
    given = {"columns": [*as_columns], "roles": roles} if name == "rows.csv" else {}
    table = datasets.Dataset.from_dict(as_columns) if given else datasets.Dataset.from_list(ROWS)
    {"rows.parquet": table.to_parquet, "rows.csv": table.to_csv, "folder": table.save_to_disk}[name](tmp_path / name)
    rows = TrainingSet(tmp_path / name, negatives=1, **given).read(tokenizer, 32)
    assert list(rows.cache) == [(row["query"], *row["pos"], *row["neg"]) for row in ROWS]
    keys = [(epoch, row) for epoch in range(2) for row in range(12)]
    expected = TrainingSet(path, negatives=1).read(tokenizer, 32).batch(keys)
    assert rows.batch(keys)["input_ids"].equal(expected["input_ids"])


def test_sentences_are_candidates_once_and_a_prompt_goes_before_the_anchor(write_file, tokenizer):
    lines = [
        {"query": ["b", "", None], "pos": ["c", "c", " "], "neg": ["d", "c", "d", ""], "prompt": "a: "},
        {"query": "e", "pos": "f", "neg": None, "prompt": math.nan},  # as pandas writes an empty cell
    ]
    path = write_file("rows.jsonl", "\n".join(map(json.dumps, lines)))
    rows = TrainingSet(path, negatives=0, prompt_column="prompt").read(tokenizer, 32)
    assert list(rows.cache) == [("a: b", "c", "d"), ("e", "f")]
    order = {"columns": ["neg", "query", "pos"], "roles": [NEGATIVE, ANCHOR, POSITIVE]}
    named = TrainingSet(path, negatives=0, prompt_column="prompt", **order).read(tokenizer, 32)
    assert list(named.cache) == list(rows.cache)
    plain = write_file("rows.csv", "prompt,first,second\na ,b,c\n,d,e\n")
    assert list(TrainingSet(plain, prompt_column="prompt").read(tokenizer, 32).cache) == [("a b", "c"), ("d", "e")]


def test_a_column_of_prompts_that_is_not_read_is_named(write_file, tokenizer, caplog):
    caplog.set_level("INFO")
    path = write_file("rows.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"], "prompt": "d"}\n' * 2)
    for column, named in ((None, True), ("prompt", False)):
        caplog.clear()
        TrainingSet(path, negatives=1, prompt_column=column).read(tokenizer, 32)
        assert named == ("prompt is not read; data.prompt_column=prompt puts" in caplog.text)


@pytest.mark.parametrize(("cells", "named"), [("a,b,c\nd,e,f\ng,h,\n", True), ("a,b\nd,e\ng,\n", False)])
def test_the_option_for_rows_without_some_negatives_is_named(cells, named, write_file, tokenizer, caplog):
    path = write_file("rows.csv", cells)
    with pytest.raises(UserError) as caught:
        TrainingSet(path, header=False).read(tokenizer, 32)
    TrainingSet(path, header=False, on_invalid_row="drop").read(tokenizer, 32)
    for text in (str(caught.value), caplog.text):
        assert named == ("is empty" in text and "data.negatives=1 reads rows without some hard negatives" in text)


@pytest.mark.parametrize("row", ['{"query": "a"}', '{"pos": ["b"]}', '{"query": ["a", "b"], "pos": "c"}'])
def test_a_row_without_an_anchor_or_a_positive_is_invalid(row, write_file, tokenizer):
    path = write_file("rows.jsonl", f'{{"query": "a", "pos": ["b"], "neg": []}}\n{row}\n' * 2)
    with pytest.raises(UserError, match=r"rows.jsonl, line 2: \d anchors and \d positives, where there should be one"):
        TrainingSet(path, negatives=1).read(tokenizer, 32)
    assert len(TrainingSet(path, negatives=1, on_invalid_row="drop").read(tokenizer, 32).cache) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"negatives": None}, "column pos is not text: .*in training set data.negatives=1, which reads lists"),
        ({"roles": [ANCHOR, POSITIVE, OTHER]}, "data.negatives=1: such rows have an anchor, positives"),
        ({"columns": ["query", "pos"], "roles": [ANCHOR]}, "data.negatives=1: such rows have an anchor, positives"),
        ({"label_column": "query"}, "data.negatives=1: such rows have .* no labels"),
        ({"columns": ["anchor", "pos"]}, "no column anchor in .*, which has the columns query, pos, neg"),
    ],
)
def test_what_does_not_fit_is_an_error(options, said, path, tokenizer):
    with pytest.raises(UserError, match=said):
        TrainingSet(path, **{"negatives": 1} | options).read(tokenizer, 32)


def test_what_is_drawn_depends_on_the_seed_the_epoch_and_the_row_alone(path, tokenizer):
    """So workers, ranks and resumed runs draw the same."""
    keys = [(epoch, row) for epoch in (1, 2) for row in range(12)]
    rows, other = (TrainingSet(path, negatives=2).read(tokenizer, 32, seed) for seed in (1, 2))
    together = texts(tokenizer, rows.batch(keys))
    assert [texts(tokenizer, rows.batch([key]))[0] for key in keys] == together
    assert together[:12] != together[12:] and together != texts(tokenizer, other.batch(keys))


def test_a_copy_is_no_hard_negative_of_a_positive():
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    embeddings = torch.cat([x, x[:, 1:2]], dim=1)
    copies = torch.tensor([[False, False, False, True]] * 2)
    batch = EmbeddedBatch(None, {}, (ANCHOR, POSITIVE, NEGATIVE, NEGATIVE), copies=copies)
    batch = batch.replaced(embeddings=embeddings, pooled=embeddings)
    for loss in (ContrastedPositives(0.3), EnergyHinge(1.5)):
        assert loss(batch).item() == pytest.approx(loss(*x.unbind(1)).item(), rel=1e-12)
