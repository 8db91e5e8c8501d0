"""Batches of any shape: sizes, masked padding, each row once; groups of similar length."""

import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simcse_pl.data import token_cache
from simcse_pl.data.collators import LabeledViewCollator, ViewCollator
from simcse_pl.data.dataset import TrainingDataset
from simcse_pl.data.token_cache import open_token_cache
from simcse_pl.data.views.words import Crop
from simcse_pl.models.backbone import load_tokenizer
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.length_bucketing import longest_of_groups
from simcse_pl.models.tokenization import padded, sorted_batches
from tests.properties.strategies import MILLIONS, sentences, shapes, texts


@pytest.fixture(scope="module", params=["bert", "roberta"])
def tokenizer(request, make_model):
    return load_tokenizer(str(make_model(request.param)))


@pytest.fixture(scope="module")
def encoder(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean").double()


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


@pytest.mark.parametrize("sentence", [MILLIONS[0], MILLIONS[-1]], ids=lambda sentence: repr(sentence[:2]))
def test_a_million_characters_are_truncated(make_model, sentence):
    tokenizer = load_tokenizer(str(make_model("bert")))
    batch = ViewCollator(tokenizer, 16)([(sentence, "a")])
    assert batch["input_ids"].shape[2] <= 16 and batch["attention_mask"][0, 1].sum() == 3


@settings(max_examples=settings.default.max_examples // 4)  # each writes to the disk
@given(rows=rows_of(sentences()), length=st.integers(3, 12), block=st.integers(1, 3))
def test_a_token_cache_returns_rows_and_tokens(encoder, rows, length, block, tmp_path_factory):
    tokenizer = encoder.tokenizer
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(token_cache, "_ROWS_A_BLOCK", block)
        names = [f"{row[0]}?" for row in rows]
        cache = open_token_cache(lambda warn: zip(rows, names, strict=True), [], tokenizer, length)
        assert list(cache.sentences) == rows and list(cache.names) == names
        assert list(pickle.loads(pickle.dumps(cache.sentences))) == rows
        for row, tokens in zip(rows, cache.tokens, strict=True):
            assert [own.tolist() for own in tokens] == [tokens_of(sentence, tokenizer, length) for sentence in row]
        assert cache.count({rows[0][0]}) == sum(row.count(rows[0][0]) for row in rows)


@given(rows=st.lists(st.tuples(sentences()), min_size=1, max_size=9), keys=st.data(), seed=st.integers(0, 99))
def test_training_rows_are_the_selected_ones_with_their_positives(rows, keys, seed):
    limit = keys.draw(st.none() | st.integers(1, len(rows)))
    training = TrainingDataset(rows, Crop(0.5), limit=limit, seed=seed)
    assert len(training) == (limit or len(rows)) and len(set(training.chosen)) == len(training)
    drawn = keys.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, len(training) - 1)), min_size=1))
    batch = training[drawn]
    for key, (sentence, positive) in zip(drawn, batch, strict=True):
        assert (sentence,) == rows[training.chosen[key[1]]]
        assert " ".join(positive.split()) in " ".join(sentence.split())
        assert training[[key]] == [(sentence, positive)]


@given(lengths=st.lists(st.integers(1, 9) | st.integers(1, 512), min_size=1, max_size=60))
def test_no_split_into_one_or_two_groups_is_less_work(lengths):
    longest = longest_of_groups(lengths)
    assert longest == sorted(set(longest)) and set(longest) <= set(lengths) and longest[-1] == max(lengths)

    def work(limits):
        padded = [min(limit for limit in limits if limit >= length) for length in lengths]
        return sum(padded) + 256 * len(set(padded))

    assert work(longest) <= min(work({one, max(lengths)}) for one in lengths)


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=40), seed=st.integers(0, 99))
def test_vectors_in_groups_are_those_of_each_sequence_alone(encoder, lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = [torch.randint(5, 90, (length,), generator=generator).tolist() for length in lengths]
    with torch.no_grad():
        together = encoder.forward_in_length_groups(padded(tokens, encoder.tokenizer))
        for place in {0, len(lengths) // 2, len(lengths) - 1}:
            alone = encoder(padded([tokens[place]], encoder.tokenizer))
            torch.testing.assert_close(together[place : place + 1], alone)
