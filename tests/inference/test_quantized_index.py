"""Quantized indexes against brute force in numpy, with and without FAISS, saved, loaded and added to."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.util.quantization import quantize_embeddings

from simcse_pl.inference import quantization, sentence_index
from simcse_pl.inference.quantization import BINARY, INT8, PRECISIONS, RANGED, UINT8
from simcse_pl.inference.sentence_index import SETTINGS_FILE, VECTORS_FILE, SentenceIndex, recall
from simcse_pl.utils.errors import UserError
from tests.inference.conftest import DIM, Table, names

QUANTIZED = (INT8, UINT8, BINARY)


def unit(encode, sentences):
    vectors = encode(sentences).numpy()
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def brute_force(corpus, queries, precision, top_k, rescore):
    """Return positions and similarities of the nearest vectors [n, dim] of each query, from the definitions."""
    low, high = corpus.min(axis=0), corpus.max(axis=0)
    if precision == BINARY:
        documents = np.where(corpus > 0, 1.0, -1.0)
        scores = np.where(queries > 0, 1.0, -1.0) @ documents.T  # dim - 2 x Hamming distance
    else:
        levels = quantize_embeddings(corpus, "uint8", ranges=np.stack([low, high])).astype(np.float64)
        documents = low + (levels + 0.5) * (high.astype(np.float64) - low) / 255
        scores = queries @ documents.T
    cosines = queries @ (documents / np.linalg.norm(documents, axis=1, keepdims=True)).T
    found = []
    for score, cosine in zip(scores, cosines, strict=True):
        candidates = sorted(range(len(corpus)), key=lambda place: (-score[place], place))[: top_k * rescore]
        ranked = sorted(candidates, key=lambda place: (-round(cosine[place], 6), place))[:top_k]
        found.append([(place, cosine[place]) for place in ranked])
    return found


@pytest.mark.parametrize("precision", QUANTIZED)
@pytest.mark.parametrize("rescore", [1, 3])
@pytest.mark.parametrize("at_once", [64, 1 << 24])
def test_candidates_are_rescored_as_by_brute_force(precision, rescore, at_once, encode, monkeypatch, without_faiss):
    monkeypatch.setattr(sentence_index, "_MAX_SIMILARITIES", at_once)
    monkeypatch.setattr(quantization, "_BLOCK", 64)
    corpus, queries = names(range(500)), names(range(480, 600))  # 20 of the queries are in the corpus
    index = SentenceIndex.build(encode, corpus).quantized(precision, rescore)
    found = index.search(queries, top_k=5)
    expected = brute_force(unit(encode, corpus), unit(encode, queries), precision, 5, rescore)
    for near, row in zip(found, expected, strict=True):
        assert [one.sentence for one in near] == names(place for place, _ in row)
        np.testing.assert_allclose([one.similarity for one in near], [value for _, value in row], atol=2e-6)
    without_faiss()
    assert index.search(queries, top_k=5) == found


@pytest.mark.parametrize("precision", QUANTIZED)
def test_equal_similarities_are_ordered_by_position(precision, without_faiss):
    copies = Table(torch.randn(3, 384).repeat(33, 1))
    index = SentenceIndex.build(copies, names(range(97))).quantized(precision)
    for _ in range(2):
        found = index.search(names(range(97)), top_k=4)  # 16 candidates of 33 equal ones
        assert [[one.sentence for one in near] for near in found] == [names(range(i % 3, 12, 3)) for i in range(97)]
        without_faiss()


@pytest.mark.parametrize("precision", QUANTIZED)
def test_a_saved_index_keeps_its_precision_and_its_ranges_when_sentences_are_added(precision, encode, tmp_path):
    SentenceIndex.build(encode, names(range(300))).quantized(precision, rescore=7).save(tmp_path, {"pooling": "mean"})
    saved = load_file(tmp_path / VECTORS_FILE)
    assert saved["vectors"].nbytes == 300 * (DIM // 8 if precision == BINARY else DIM)
    for name in names(range(300, 600)):
        encode.vectors[name] = encode.vectors[name] ** 3  # of other ranges
    loaded = SentenceIndex.load(tmp_path, encode, {"pooling": "mean"})
    assert (loaded.quantizer.precision, loaded.rescore, loaded.dim) == (precision, 7, DIM)
    assert loaded.add(names(range(290, 600))) == 300
    vectors = unit(encode, names(range(600)))
    ranges = saved["ranges"].numpy() if precision in RANGED else None
    expected = quantize_embeddings(vectors, "ubinary" if precision == BINARY else precision, ranges=ranges)
    np.testing.assert_array_equal(loaded.vectors.numpy(), expected)
    loaded.save(tmp_path / "again", {})
    again = SentenceIndex.load(tmp_path / "again", encode, {})
    assert again.search(names(range(600)), 5) == loaded.search(names(range(600)), 5)
    assert again.search(["s 450"], 1)[0][0].sentence == "s 450"


@pytest.mark.parametrize("precision", QUANTIZED)
@pytest.mark.parametrize(("rescore", "most"), [(1, 1000), (2, 90)])
def test_recall_is_that_of_brute_force(precision, rescore, most, encode):
    exact = SentenceIndex.build(encode, names(range(600)))
    vectors = unit(encode, names(range(600)))
    queries = range(0, 600, 1 if most == 1000 else 7)
    found = brute_force(vectors, vectors[queries], precision, 11, rescore)
    shares = []
    for own, row in zip(queries, found, strict=True):
        near = [place for place, _ in row if place != own][:10]
        nearest = [place for place in np.argsort(-(vectors @ vectors[own])) if place != own][:10]
        shares.append(len({*near} & {*nearest}) / 10)
    share = recall(exact.quantized(precision, rescore), exact, most=most)
    assert share == pytest.approx(np.mean(shares)) and 0.1 < share < 1


def test_recall_of_few_sentences_and_of_fewer_dimensions(encode):
    exact = SentenceIndex.build(encode, names(range(600)))
    assert recall(exact, exact) == 1
    one = SentenceIndex.build(encode, ["s 1"])
    assert recall(one.quantized(BINARY), one) == 1  # nothing to miss
    cut = SentenceIndex.build(lambda sentences: encode(sentences)[:, :24], names(range(600)))
    whole, part = unit(encode, names(range(600))), unit(cut.encode, names(range(600)))
    nearest = [{*np.argsort(-own)[:11]} - {i} for i, own in enumerate(whole @ whole.T)]
    found = [{*np.argsort(-own)[:11]} - {i} for i, own in enumerate(part @ part.T)]
    shares = [len(a & b) / 10 for a, b in zip(nearest, found, strict=True)]
    assert recall(cut, exact) == pytest.approx(np.mean(shares)) and np.mean(shares) < 0.95


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (lambda tensors: tensors.pop("vectors"), {}, "vectors"),
        (lambda tensors: tensors.pop("ranges"), {}, "precision=uint8 needs the ranges"),
        (lambda tensors: tensors.update(vectors=tensors["vectors"][:9].clone()), {}, "must hold 20 finite vectors"),
        (lambda tensors: tensors.update(ranges=tensors["ranges"][:, :9].clone()), {}, "must hold 20 finite vectors"),
        (lambda tensors: tensors["ranges"].fill_(torch.nan), {}, "must hold 20 finite vectors"),
        (lambda tensors: None, {"precision": "float32"}, "must hold 20 finite vectors in float32"),
        (lambda tensors: None, {"precision": "uint4"}, "precision=uint4: choose one of"),
        (lambda tensors: None, {"rescore": "many"}, "many"),
    ],
)
def test_damaged_folders_raise_one_line(change, settings, message, encode, tmp_path):
    SentenceIndex.build(encode, names(range(20))).quantized(UINT8).save(tmp_path, {})
    tensors = load_file(tmp_path / VECTORS_FILE)
    change(tensors)
    save_file(tensors, tmp_path / VECTORS_FILE)
    saved = json.loads((tmp_path / SETTINGS_FILE).read_text())
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(saved | settings))
    with pytest.raises(UserError, match=f"{tmp_path} is damaged, build the index again: .*{message}"):
        SentenceIndex.load(tmp_path, encode, {})


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_index_rejects_another_encoder_but_not_rounding(precision, encode, tmp_path):
    SentenceIndex.build(encode, names(range(20))).quantized(precision).save(tmp_path, {})
    own = dict(encode.vectors)
    encode.vectors = {name: vector.bfloat16().float() for name, vector in own.items()}
    index = SentenceIndex.load(tmp_path, encode, {})
    for differs in ("s 0", "s 10"):  # the longest: `max_length` may be another
        encode.vectors = own | {differs: torch.randn(DIM)}
        with pytest.raises(UserError, match=f"another encoder or with other settings: the vector of '{differs}'"):
            SentenceIndex.load(tmp_path, encode, {})
    index.encode = narrow = Table(torch.randn(600, 8))
    for call in (
        lambda: SentenceIndex.load(tmp_path, narrow, {}),
        lambda: index.search(["s 20"]),
        lambda: index.add(["s 20"]),
    ):
        with pytest.raises(UserError, match=f"{DIM} dimensions, but the encoder returns 8"):
            call()


def test_an_index_without_a_precision_is_in_float32(encode, tmp_path):
    """The format of earlier versions."""
    index = SentenceIndex.build(encode, names(range(20)))
    index.save(tmp_path, {})
    path = tmp_path / SETTINGS_FILE
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({name: saved[name] for name in ("encoder", "sentences")}))
    assert SentenceIndex.load(tmp_path, encode, {}).search(["s 30"], 5) == index.search(["s 30"], 5)
