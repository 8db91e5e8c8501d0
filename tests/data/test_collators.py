"""Batches of views and of pairs."""

import numpy as np
import pytest
import torch

from simcse_pl.data.collators import LabeledViewCollator, PairCollator, ViewCollator
from simcse_pl.models.backbone import load_tokenizer
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import padded, tokenize
from tests.conftest import ARCHITECTURES, SENTENCES


@pytest.fixture
def tokenizer(make_model):
    return load_tokenizer(str(make_model("bert")))


@pytest.mark.parametrize("columns", [2, 3])
def test_views_have_the_order_of_their_columns(columns, tokenizer):
    rows = [tuple(f"row {r} column {c} " + "x" * c for c in range(columns)) for r in range(4)]
    batch = ViewCollator(tokenizer, 16)(rows)
    assert batch["input_ids"].shape[:2] == (4, columns)
    for r, row in enumerate(rows):
        for c, sentence in enumerate(row):
            ids = batch["input_ids"][r, c][batch["attention_mask"][r, c].bool()]
            assert ids.tolist() == tokenizer(sentence, truncation=True, max_length=16)["input_ids"]


def test_a_sentence_is_its_own_second_view(tokenizer):
    batch = ViewCollator(tokenizer, 16)([("one sentence",), ("another one that is longer",)])
    for tensor in batch.values():
        assert tensor.shape[:2] == (2, 2)
        assert torch.equal(tensor[:, 0], tensor[:, 1])


def test_sentences_are_truncated_to_the_maximum_length(tokenizer):
    batch = ViewCollator(tokenizer, 7)([("word " * 100,)])
    assert batch["input_ids"].shape == (1, 2, 7)
    assert batch["input_ids"][0, 0, -1] == tokenizer.sep_token_id


def test_labels_are_beside_the_views(tokenizer):
    views = ViewCollator(tokenizer, 16)
    rows = [("a b", "c d"), ("e", "f"), ("g h i", "j")]
    batch = LabeledViewCollator(views)(list(zip(rows, [2, 0, 1], strict=True)))
    labels = batch.pop("labels")
    assert labels.dtype == torch.int64 and labels.tolist() == [2, 0, 1]
    assert batch.keys() == views(rows).keys()
    assert all(torch.equal(batch[name], tensor) for name, tensor in views(rows).items())


def test_pairs_keep_their_scores(tokenizer):
    first, second = tokenize(tokenizer, ["a b", "d"], 16), tokenize(tokenizer, ["c", "e f g"], 16)
    batch = PairCollator(tokenizer)(list(zip(first, second, [4.2, 0.0], strict=True)))
    assert batch["input_ids"].shape[:2] == (2, 2)
    assert batch["input_ids"][1, 1, : len(second[1])].tolist() == second[1]
    torch.testing.assert_close(batch["scores"], torch.tensor([4.2, 0.0]))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_is_the_tokenizers_own(architecture, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean")
    ours = padded(tokenize(encoder.tokenizer, SENTENCES, 12), encoder.tokenizer)
    theirs = encoder.tokenizer(SENTENCES, padding=True, truncation=True, max_length=12, return_tensors="pt")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_row_may_have_text_and_tokens(tokenizer):
    rows = [("a b", "c d e"), ("f", "g")]
    mixed = [(np.array(tokenize(tokenizer, [first], 9)[0], dtype=np.uint16), second) for first, second in rows]
    views = ViewCollator(tokenizer, 9)
    assert all(torch.equal(tensor, views(rows)[name]) for name, tensor in views(mixed).items())
