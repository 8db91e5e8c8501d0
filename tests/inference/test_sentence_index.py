"""The index against brute force in float64, stored values against sentence-transformers, and saved folders."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sentence_transformers.util.quantization import quantize_embeddings

from simcse_pl.inference import sentence_index
from simcse_pl.inference.sentence_index import (
    BINARY,
    FLOAT32,
    INT8,
    PRECISIONS,
    SETTINGS_FILE,
    VECTORS_FILE,
    Quantizer,
    SentenceIndex,
)
from simcse_pl.utils.errors import UserError
from tests.inference.conftest import DIM, Lookup, names
from tests.pretend_device import DEVICE, Pretend


def unit(encode, sentences):
    vectors = np.stack([encode.vectors[sentence].numpy() for sentence in sentences])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def stored(vectors, precision):
    """Return what the stored vectors [n, dim] of a precision stand for, in float64, from the definitions."""
    if precision == BINARY:
        return np.where(vectors > 0, 1.0, -1.0)
    if precision == INT8:
        low, high = vectors.min(axis=0).astype(np.float64), vectors.max(axis=0)
        return low + (quantize_embeddings(vectors, "uint8").astype(np.float64) + 0.5) * (high - low) / 255
    return vectors.astype(np.float64)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("block", [64, 8192])
def test_nearest_sentences_are_those_of_brute_force(precision, block, encode, monkeypatch):
    monkeypatch.setattr(sentence_index, "_BLOCK", block)
    corpus, queries = names(range(450)), names(range(430, 500))  # 20 of the queries are in the corpus
    index = SentenceIndex.build(encode, corpus).quantized(precision)
    results = index.search(queries, top_k=5, leave_out_equal=True)
    vectors = stored(unit(encode, corpus), precision)
    cosines = unit(encode, queries) @ (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).T
    for query, near, row in zip(queries, results, cosines, strict=True):
        nearest = [place for place in np.argsort(-row) if corpus[place] != query][:5]
        np.testing.assert_allclose([one.similarity for one in near], row[nearest], atol=2e-6)
        assert [one.sentence for one in near] == names(nearest)
    with Pretend():
        on_device = replace(index, device=DEVICE).search(queries, top_k=5, leave_out_equal=True)
    assert on_device == results
    above = [[one for one in near if one.similarity >= 0.5] for near in results]
    assert index.search(queries, 5, threshold=0.5, leave_out_equal=True) == above != results


@pytest.mark.parametrize("precision", PRECISIONS)
def test_stored_values_equal_those_of_sentence_transformers(precision, encode):
    calibration, vectors = encode(names(range(300))).numpy(), 2 * encode(names(range(300, 600))).numpy()
    calibration[:, 2] = vectors[:, 2] = 0.25  # a constant dimension
    quantizer = Quantizer.fitted(precision, calibration)
    theirs = "ubinary" if precision == BINARY else precision
    expected = quantize_embeddings(vectors, theirs, calibration_embeddings=calibration)
    codes = quantizer.quantize(vectors)
    assert codes.dtype == expected.dtype
    np.testing.assert_array_equal(codes, expected)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_equal_similarities_are_ordered_by_position(precision):
    lengths = torch.rand(99, 1) if precision == FLOAT32 else 1  # rounding moves a few levels
    copies = Lookup(torch.randn(3, 384).repeat(33, 1) * lengths)
    results = SentenceIndex.build(copies, names(range(97))).quantized(precision).search(names(range(97)), 97)
    assert [[one.sentence for one in near[:4]] for near in results] == [names(range(i % 3, 12, 3)) for i in range(97)]


def test_a_threshold_of_1_finds_identical_sentences():
    """In float32, the length of half of all normalized vectors is below 1."""
    encode = Lookup(torch.randn(300, 384))
    results = SentenceIndex.build(encode, names(range(300))).search(names(range(300)), 5, threshold=1.0)
    assert results == [[(name, 1.0)] for name in names(range(300))]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_saved_index_finds_the_same_and_keeps_its_ranges_when_sentences_are_added(precision, encode, tmp_path):
    encode.vectors["Zürich\n\u0085 🙂"] = torch.ones(DIM)
    corpus = [*names(range(300)), "Zürich\n\u0085 🙂"]
    index = SentenceIndex.build(encode, corpus).quantized(precision)
    for _ in range(2):
        index.save(tmp_path / "a" / "b", {"pooling": "mean"})
    for name in names(range(300, 600)):
        encode.vectors[name] = encode.vectors[name] ** 3  # of other ranges
    encode.encoded.clear()
    loaded = SentenceIndex.load(tmp_path / "a" / "b", encode, {"pooling": "mean"})
    assert loaded.sentences == corpus and not encode.encoded
    assert loaded.search(corpus, 7) == index.search(corpus, 7)
    encode.encoded.clear()
    assert loaded.add(names([299, 300, 301, 300])) == 2 and loaded.add([]) == 0
    assert encode.encoded == names([300, 301]) and len(loaded) == 303
    expected = index.quantizer.quantize(unit(encode, names([300, 301])))
    np.testing.assert_allclose(loaded.vectors[-2:].numpy(), expected, rtol=1e-6)
    assert loaded.vectors[0].nbytes == {FLOAT32: 4 * DIM, INT8: DIM, BINARY: DIM // 8}[precision]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (SETTINGS_FILE, None, "holds no index, or a damaged one: .*index.json"),
        (SETTINGS_FILE, {"encoder": {"pooling": "cls"}}, "built with pooling=cls, but the encoder has pooling=mean"),
        (VECTORS_FILE, None, "vectors.safetensors is damaged: No such file"),
    ],
)
def test_another_encoder_and_damaged_files_are_errors(file, change, message, encode, tmp_path):
    SentenceIndex.build(encode, names(range(20))).save(tmp_path, {"pooling": "mean"})
    path = tmp_path / file
    match change:
        case None:
            path.unlink()
        case dict():
            path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=f"{tmp_path}.*{message}"):
        SentenceIndex.load(tmp_path, encode, {"pooling": "mean"})


def test_vectors_that_cannot_be_stored_are_errors(encode):
    encode.vectors["s 7"] = torch.full((DIM,), torch.nan)
    with pytest.raises(UserError, match="not finite"):
        SentenceIndex.build(encode, names(range(9)))
    with pytest.raises(UserError, match="multiple of 8 dimensions, not 30"):
        Quantizer(BINARY).quantize(np.ones((2, 30), np.float32))
