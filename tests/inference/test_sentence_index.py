"""The index against brute force in float64, FAISS's cells against exact search, and damaged folders."""

import numpy as np
import pytest
import torch

from simcse_pl.inference import sentence_index
from simcse_pl.inference.sentence_index import SETTINGS_FILE, VECTORS_FILE, SentenceIndex
from simcse_pl.utils.errors import UserError
from tests.inference.conftest import DIM, Table, names

ALL_CELLS = (7, 7)


def sentences_of(found):
    return [[neighbour.sentence for neighbour in near] for near in found]


def brute_force(encode, corpus, query, top_k):
    """Return the nearest sentences and their cosines in float64, without the query itself."""
    others = [sentence for sentence in dict.fromkeys(corpus) if sentence != query]
    vectors = np.stack([encode.vectors[sentence].double().numpy() for sentence in others])
    vector = encode.vectors[query].double().numpy()
    cosines = vectors @ vector / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vector)
    nearest = np.argsort(-cosines)[:top_k]
    return [others[i] for i in nearest], cosines[nearest]


@pytest.mark.parametrize("cells", [None, ALL_CELLS])
@pytest.mark.parametrize("at_once", [64, 1 << 24])
def test_nearest_sentences_are_those_of_brute_force(cells, at_once, encode, monkeypatch):
    monkeypatch.setattr(sentence_index, "_MAX_SIMILARITIES", at_once)
    corpus, queries = names(range(450)), names(range(430, 500))  # 20 of the queries are in the corpus
    found = SentenceIndex.build(encode, corpus, cells).search(queries, top_k=5, leave_out_equal=True)
    for query, neighbours in zip(queries, found, strict=True):
        sentences, cosines = brute_force(encode, corpus, query, 5)
        assert [neighbour.sentence for neighbour in neighbours] == sentences
        np.testing.assert_allclose([neighbour.similarity for neighbour in neighbours], cosines, atol=1e-6)


def test_a_threshold_of_1_finds_identical_sentences():
    """In float32, the length of half of all normalized vectors is below 1."""
    encode = Table(torch.randn(300, 384))
    found = SentenceIndex.build(encode, names(range(300))).search(names(range(300)), 5, threshold=1.0)
    assert found == [[(name, 1.0)] for name in names(range(300))]


def test_equal_similarities_are_ordered_by_position():
    copies = Table(torch.randn(3, 384).repeat(33, 1) * torch.rand(99, 1))
    found = SentenceIndex.build(copies, names(range(97))).search(names(range(97)), 97)
    assert [near[:4] for near in sentences_of(found)] == [names(range(i % 3, 12, 3)) for i in range(97)]


@pytest.mark.parametrize("cells", [None, ALL_CELLS])
def test_added_sentences_are_found_as_if_built_with_them(cells, encode):
    index = SentenceIndex.build(encode, names(range(300)), cells)
    index.search(["s 1"])
    encode.encoded.clear()
    assert index.add(names([299, 300, 301, 300])) == 2 and index.add(names(range(9))) == 0 == index.add([])
    assert encode.encoded == names([300, 301]) and len(index) == 302
    whole = SentenceIndex.build(encode, names(range(302)), cells)
    assert index.search(names(range(500)), 5) == whole.search(names(range(500)), 5)


@pytest.mark.parametrize("cells", [None, (100, 100)])
def test_a_corpus_may_be_smaller_than_top_k(cells, encode, capfd):
    found = SentenceIndex.build(encode, ["s 0"], cells).search(["s 0", "s 1"], top_k=10, leave_out_equal=True)
    assert sentences_of(found) == [[], ["s 0"]]
    assert "WARNING" not in "".join(capfd.readouterr())


def test_fewer_cells_find_most_neighbours_deterministically():
    encode = Table(torch.randn(3000, DIM))
    corpus, queries = names(range(2900)), names(range(2900, 3000))
    exact, first, again = (
        sentences_of(SentenceIndex.build(encode, corpus, cells).search(queries, 10))
        for cells in (None, (50, 20), (50, 20))
    )
    found = sum(len(set(a) & set(b)) for a, b in zip(exact, first, strict=True))
    assert first == again and 0.8 * 1000 < found < 1000


def test_a_loaded_index_finds_the_same_without_encoding_the_corpus(encode, tmp_path):
    encode.vectors["Zürich\n\u0085 🙂"] = torch.ones(DIM)
    corpus = [*encode.vectors][200:]
    index = SentenceIndex.build(encode, corpus)
    for _ in range(2):
        index.save(tmp_path / "a" / "b", {"pooling": "mean"})
    encode.encoded.clear()
    loaded = SentenceIndex.load(tmp_path / "a" / "b", encode, {"pooling": "mean"})
    assert encode.encoded == [corpus[0], corpus[-1]]  # the first and the longest
    assert loaded.sentences == corpus
    assert loaded.search(names(range(100)), 7) == index.search(names(range(100)), 7)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (SETTINGS_FILE, None, "holds no index: index.json is missing"),
        (SETTINGS_FILE, '{"encoder":', "not valid JSON"),
        (SETTINGS_FILE, '{"encoder": {}, "sentences": ["s 10", "s 11"]}', "was built by another encoder"),
        (SETTINGS_FILE, '{"encoder": {}, "sentences": ["s 0"]}', "is damaged, build the index again: "),
        (VECTORS_FILE, "nothing", f"{VECTORS_FILE} is damaged: "),
    ],
)
def test_damaged_files_raise_one_line(file, content, message, encode, tmp_path):
    SentenceIndex.build(encode, ["s 0", "s 1"]).save(tmp_path, {})
    path = tmp_path / file
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(UserError, match=f"{tmp_path}.*{message}"):
        SentenceIndex.load(tmp_path, encode, {})


def test_invalid_arguments_raise_errors(encode):
    index = SentenceIndex.build(encode, names(range(9)))
    encode.vectors["s 7"] = torch.full((DIM,), torch.nan)
    for call, message in (
        (lambda: SentenceIndex.build(encode, []), "there are no sentences to index"),
        (lambda: SentenceIndex.build(encode, names(range(9))), "the vector of 's 7' is not finite"),
        (lambda: index.search(["s 1"], 0), "top_k=0: it must be at least 1"),
        (lambda: index.quantized("int8", 0).search(["s 1"]), "rescore=0: it must be at least 1"),
        (lambda: index.search(["s 0"], 2, float("nan")), "threshold=nan: it must be between -1 and 1"),
    ):
        with pytest.raises(UserError, match=message):
            call()
