"""Batches of any shape: sizes, masked padding, each row once; groups of similar length."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simcse_pl.data.collators import LabeledViewCollator, ViewCollator
from simcse_pl.models.backbone import load_tokenizer
from simcse_pl.models.tokenization import sorted_batches
from tests.properties.strategies import shapes, texts


@pytest.fixture(scope="module", params=["bert", "roberta"])
def tokenizer(request, make_model):
    return load_tokenizer(str(make_model(request.param)))


def rows_of(cells, rows=5, views=4):
    return shapes(rows, views).flatmap(
        lambda shape: st.lists(st.tuples(*[cells] * shape[1]), min_size=shape[0], max_size=shape[0])
    )


def check(batch, expected, tokenizer):
    """Compare `batch` [rows, views, tokens] with the expected tokens, [rows][views], and masked padding."""
    rows, views = len(expected), len(expected[0])
    longest = max(len(tokens) for row in expected for tokens in row)
    assert set(batch) == set(tokenizer.model_input_names)
    for tensor in batch.values():
        assert tensor.shape == (rows, views, longest) and tensor.dtype == torch.int64
    for row, view in itertools.product(range(rows), range(views)):
        tokens, padding = expected[row][view], longest - len(expected[row][view])
        assert batch["input_ids"][row, view].tolist() == [*tokens, *[tokenizer.pad_token_id] * padding]
        assert batch["attention_mask"][row, view].tolist() == [1] * len(tokens) + [0] * padding


def tokens_of(sentence, tokenizer, length):
    return tokenizer(sentence, truncation=True, max_length=length)["input_ids"]


@given(rows=rows_of(texts()), length=st.integers(3, 20), labels=st.data())
def test_views_of_any_text_are_padded_and_masked(tokenizer, rows, length, labels):
    collate = ViewCollator(tokenizer, length)
    expected = [[tokens_of(sentence, tokenizer, length) for sentence in row] for row in rows]
    expected = [row * 2 if len(row) == 1 else row for row in expected]
    check(collate(rows), expected, tokenizer)
    given = [tuple(np.array(tokens_of(sentence, tokenizer, length), np.uint16) for sentence in row) for row in rows]
    check(collate(given), expected, tokenizer)
    classes = labels.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    batch = LabeledViewCollator(collate)(list(zip(rows, classes, strict=True)))
    assert batch.pop("labels").tolist() == classes
    check(batch, expected, tokenizer)


@given(texts=st.lists(texts(), max_size=12), size=st.integers(1, 5), length=st.integers(3, 12))
def test_every_sentence_is_in_one_batch(tokenizer, texts, size, length):
    places = []
    for own, batch in sorted_batches(texts, tokenizer, size, length):
        places += own
        assert 1 <= len(own) <= size
        expected = [[tokens_of(texts[place], tokenizer, length)] for place in own]
        check({name: tensor.unsqueeze(1) for name, tensor in batch.items()}, expected, tokenizer)
    assert sorted(places) == list(range(len(texts)))
