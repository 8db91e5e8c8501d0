"""The index against brute force in float64, saved folders, and retrieval as a task of an evaluation."""

import json
import math

import numpy as np
import pytest
import torch

from simcse_pl.tools import sentence_index
from simcse_pl.tools.sentence_index import SENTENCES_FILE, SETTINGS_FILE, VECTORS_FILE, RetrievalTask, SentenceIndex
from simcse_pl.utils.errors import UserError
from tests.support.helpers import killed_while_moving
from tests.support.pretend_device import DEVICE, Pretend

DIM = 32


class Lookup:
    """An `encode` that looks up vectors by sentence, and records the sentences."""

    def __init__(self, vectors):
        self.vectors = {f"s {i}": vector for i, vector in enumerate(vectors)}
        self.encoded = []

    def __call__(self, sentences):
        assert isinstance(sentences, list)
        self.encoded += sentences
        return torch.stack([self.vectors[sentence] for sentence in sentences])


def names(numbers):
    return [f"s {i}" for i in numbers]


@pytest.fixture
def encode():
    """Sentences `s 0` to `s 599`, with vectors whose dimensions have different ranges and whose lengths differ."""
    return Lookup((torch.randn(600, DIM) * torch.rand(DIM) + 0.1 * torch.randn(DIM)) * torch.rand(600, 1) * 9)


def built(encode, sentences):
    index = SentenceIndex()
    index.add(encode, sentences)
    return index


def unit(encode, sentences):
    vectors = np.stack([encode.vectors[sentence].double().numpy() for sentence in sentences])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [64, 8192])
def test_nearest_sentences_are_those_of_brute_force(block, encode, monkeypatch):
    monkeypatch.setattr(sentence_index, "_BLOCK", block)
    corpus, queries = names(range(450)), names(range(430, 500))  # 20 of the queries are in the corpus
    index = built(encode, corpus)
    results = index.search(encode, queries, top_k=5, leave_out_equal=True)
    cosines = unit(encode, queries) @ unit(encode, corpus).T
    for query, near, row in zip(queries, results, cosines, strict=True):
        nearest = [place for place in np.argsort(-row) if corpus[place] != query][:5]
        np.testing.assert_allclose([one.similarity for one in near], row[nearest], atol=2e-6)
        assert [one.sentence for one in near] == names(nearest)
    with Pretend():
        on_device = index.search(encode, queries, top_k=5, leave_out_equal=True, device=DEVICE)
    assert on_device == results
    above = [[one for one in near if one.similarity >= 0.5] for near in results]
    assert index.search(encode, queries, 5, threshold=0.5, leave_out_equal=True) == above != results


@pytest.mark.parametrize("block", [64, 8192])
@pytest.mark.parametrize("top_k", [4, 97])
def test_equal_similarities_are_ordered_by_position(top_k, block, monkeypatch):
    monkeypatch.setattr(sentence_index, "_BLOCK", block)
    copies = Lookup(torch.randn(3, 384).repeat(33, 1) * torch.rand(99, 1))
    results = built(copies, names(range(97))).search(copies, names(range(97)), top_k)
    assert [[one.sentence for one in near[:4]] for near in results] == [names(range(i % 3, 12, 3)) for i in range(97)]


def test_highest_leaves_its_scores_as_they_are():
    scores = torch.tensor([[3, 1, 2]])
    assert sentence_index.highest(scores, 2).tolist() == [[0, 2]] and scores.tolist() == [[3, 1, 2]]


def test_an_empty_index_has_no_hits(encode):
    assert built(encode, []).search(encode, names(range(3))) == [[], [], []]


def test_a_threshold_of_1_finds_identical_sentences():
    """In float32, the length of half of all normalized vectors is below 1."""
    encode = Lookup(torch.randn(300, 384))
    results = built(encode, names(range(300))).search(encode, names(range(300)), 5, threshold=1.0)
    assert results == [[(name, 1.0)] for name in names(range(300))]


def test_a_saved_index_finds_the_same_and_sentences_can_be_added(encode, tmp_path):
    encode.vectors["Zürich\n\u0085 🙂"] = torch.ones(DIM)
    corpus = [*names(range(300)), "Zürich\n\u0085 🙂"]
    index = built(encode, corpus)
    for _ in range(2):
        index.save(tmp_path / "a" / "b", {"pooling": "mean"})
    encode.encoded.clear()
    loaded = SentenceIndex.load(tmp_path / "a" / "b", {"pooling": "mean"})
    assert loaded.sentences == corpus and not encode.encoded
    assert loaded.search(encode, corpus, 7) == index.search(encode, corpus, 7)
    encode.encoded.clear()
    assert loaded.add(encode, names([299, 300, 301, 300])) == 2 and loaded.add(encode, []) == 0
    assert encode.encoded == names([300, 301]) and len(loaded) == 303
    np.testing.assert_allclose(loaded.vectors[-2:].numpy(), unit(encode, names([300, 301])), rtol=1e-6)


def test_given_vectors_are_compared_at_some_places_and_must_be_finite(encode):
    corpus = names([*range(500), *range(100)])
    vectors = torch.stack([3 * encode.vectors[name] for name in corpus])
    index = SentenceIndex()
    assert index.add(encode, corpus, vectors) == 500 and 20 < len(encode.encoded) <= 32
    np.testing.assert_allclose(index.vectors.numpy(), unit(encode, names(range(500))), rtol=1e-5, atol=1e-7)
    for wrong in (vectors[:, :-1], vectors[0], vectors.flip(0)):
        with pytest.raises(UserError, match="^vectors: "):
            SentenceIndex().add(encode, corpus, wrong)
    vectors[1] = math.nan
    with pytest.raises(UserError, match="not finite"):
        SentenceIndex().add(encode, names(range(500)), vectors[:500])


def test_a_replacement_that_is_killed_between_two_files_is_finished(encode, tmp_path):
    index = built(encode, names(range(20)))
    index.save(tmp_path, {})
    index.add(encode, names(range(20, 30)))
    with killed_while_moving(tmp_path):
        index.save(tmp_path, {})
    loaded = SentenceIndex.load(tmp_path, {})
    assert loaded.sentences == index.sentences and torch.equal(loaded.vectors, index.vectors)


def test_sentences_without_vectors_are_an_error(encode, tmp_path):
    built(encode, names(range(20))).save(tmp_path, {})
    (tmp_path / SENTENCES_FILE).write_text(json.dumps(names(range(21))))
    with pytest.raises(UserError, match="has 21 sentences, 20 vectors and 20 ids: build it again$"):
        SentenceIndex.load(tmp_path, {})


@pytest.mark.parametrize("file", [SETTINGS_FILE, VECTORS_FILE])
def test_a_missing_file_is_an_error(file, encode, tmp_path):
    built(encode, names(range(20))).save(tmp_path, {})
    (tmp_path / file).unlink()
    with pytest.raises(UserError, match=f"{tmp_path}.* damaged.*{file}"):
        SentenceIndex.load(tmp_path, {})


def on_circle(sentences, prompt_name=None):
    """Map sentences onto the circle: the angle of a sentence is its length."""
    angles = torch.tensor([len(sentence) * 0.1 for sentence in sentences])
    return torch.stack([angles.cos(), angles.sin()], dim=1) * 3


def test_results_of_retrieval_are_plain_values_in_the_order_of_the_queries(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a\naa\naaaa\naaaaaaaa\naa\n")
    (tmp_path / "queries.txt").write_text("aaa\naaaaa\n")
    result = RetrievalTask(corpus, str(tmp_path / "queries.txt"), top_k=2)(on_circle)
    found = json.loads(json.dumps(result.model_dump()))
    first, second = found.pop("queries")
    assert found == {"corpus": str(corpus), "sentences": 4}
    assert (first["query"], second["query"]) == ("aaa", "aaaaa")
    similarities = {neighbour["sentence"]: neighbour["similarity"] for neighbour in first["neighbours"]}
    assert similarities == pytest.approx({"aa": 0.995004, "aaaa": 0.995004}, abs=1e-5)
