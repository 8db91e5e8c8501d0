"""SimCSE against the interface and the vectors of the released tool, and brute force."""

import doctest
import pickle
import unicodedata

import numpy as np
import pandas
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModel, AutoTokenizer

from simcse_pl import SimCSE
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.tools import simcse as api
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES


@pytest.fixture
def fresh(make_model):
    return SimCSE(make_model("bert"), pooling="mean", device="cpu")


def released(folder, sentences, max_length=64, normalize=True):
    """Return the vectors of the released tool: plain transformers, one padded batch."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(sentences, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    with torch.no_grad():
        vectors = model(**inputs).pooler_output
    return (F.normalize(vectors, dim=1) if normalize else vectors).numpy()


CORPUS, QUERIES = SENTENCES[:6], [SENTENCES[6], SENTENCES[2]]


@pytest.fixture(scope="module")
def tool(make_model):
    """The encoder, built with positional arguments as in the released tool; tests/fidelity has the other poolers."""
    folder = make_model("bert", initializer_range=0.3)  # or all cosines are nearly 1
    return SimCSE(str(folder), "cpu", 100, 10, "cls"), folder


def test_encode_is_that_of_the_released_tool(tool):
    simcse, folder = tool
    close = {"atol": 1e-5, "rtol": 0}
    vectors = simcse.encode(CORPUS)
    assert isinstance(vectors, torch.Tensor)
    np.testing.assert_allclose(vectors, released(folder, CORPUS), **close)
    assert simcse.encode([]).shape == (0, 32)
    for keepdim, shape in ((False, (32,)), (True, (1, 32))):
        one = simcse.encode(CORPUS[5], "cpu", True, False, keepdim, 2, 8)  # all arguments by position
        expected = released(folder, CORPUS[5:6], 8, normalize=False).reshape(shape)
        assert isinstance(one, np.ndarray) and one.shape == shape
        np.testing.assert_allclose(one, expected, **close)
    keywords = {"device": "cpu", "return_numpy": True, "normalize_to_unit": True, "batch_size": 64, "max_length": 8}
    np.testing.assert_allclose(simcse.encode(CORPUS, **keywords), released(folder, CORPUS, 8), **close)


def test_similarity_is_that_of_the_released_tool(tool):
    simcse, folder = tool
    keys, queries = released(folder, CORPUS), released(folder, QUERIES)
    for asked, expected in (
        ((QUERIES, CORPUS), queries @ keys.T),
        ((QUERIES, CORPUS, "cpu"), queries @ keys.T),
        ((QUERIES, keys * 3), queries @ keys.T),
        ((QUERIES, CORPUS[1]), queries @ keys[1:2].T),  # [n, 1]
        ((QUERIES[1], CORPUS), queries[1] @ keys.T),
        ((QUERIES[1], [CORPUS[1]]), queries[1] @ keys[1:2].T),  # [1]
        ((torch.from_numpy(queries) * 2, keys), queries @ keys.T),  # not in the released tool: vectors on both sides
    ):
        found = simcse.similarity(*asked)
        assert isinstance(found, np.ndarray) and found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    number = simcse.similarity(QUERIES[1], CORPUS[1])
    assert type(number) is float and number == pytest.approx(queries[1] @ keys[1], abs=1e-5)


@pytest.mark.parametrize("how", [(), (True, True, "cpu", 64)], ids=str)
def test_search_is_that_of_the_released_tool(how, tool, tmp_path):
    simcse, folder = tool
    similarities = released(folder, QUERIES) @ released(folder, CORPUS).T
    expected = [[(CORPUS[i], pytest.approx(row[i], abs=1e-5)) for i in np.argsort(-row)] for row in similarities]
    (tmp_path / "more.txt").write_text(CORPUS[5] + "\n")
    simcse.build_index(CORPUS[:5], *how)
    simcse.add_to_index(str(tmp_path / "more.txt"), "cpu", 64)
    assert simcse.search(QUERIES, threshold=-1, top_k=9) == expected
    assert simcse.search(QUERIES[0], "cpu", -1, 2) == expected[0][:2]
    middle = float(np.median(similarities))
    above = [[one for one in near if one[1].expected >= middle] for near in expected]
    assert simcse.search(QUERIES, "cpu", middle, 9) == above
    assert simcse.search(QUERIES[0]) == [one for one in expected[0] if one[1].expected >= 0.6][:5]
    for sentence, score in simcse.search(QUERIES[1]):
        assert f"{sentence} {score:.4f}" and type(score) is float
    assert simcse.search(QUERIES[1])[0] == (QUERIES[1], 1.0) and simcse.search(QUERIES[1])[0].similarity == 1


@pytest.mark.parametrize("kind", [tuple, pandas.Series, np.array])
def test_tuples_series_and_arrays_are_read_as_lists(kind, fresh):
    corpus, queries = kind(CORPUS), kind(QUERIES)
    assert torch.equal(fresh.encode(corpus), fresh.encode(CORPUS))
    np.testing.assert_array_equal(fresh.similarity(queries, corpus), fresh.similarity(QUERIES, CORPUS))
    fresh.build_index(corpus)
    assert fresh.search(queries) == fresh.search(QUERIES) and fresh.index.sentences == CORPUS


def test_texts_are_compared_in_nfc_as_files_are_read(make_model, tmp_path):
    """A keyboard of macOS may write an accent of its own; byte-level BPE makes other tokens of it."""
    composed, decomposed = "un été à Zürich", unicodedata.normalize("NFD", "un été à Zürich")
    simcse = SimCSE(make_model("gpt2"), pooling="mean", device="cpu")
    (tmp_path / "texts.txt").write_text(f"{decomposed}\n{CORPUS[0]}\n")
    for given in (str(tmp_path / "texts.txt"), [decomposed, composed, CORPUS[0]]):
        simcse.build_index(given)
        assert simcse.index.sentences == [composed, CORPUS[0]]
        assert simcse.search([decomposed], top_k=1) == [[(composed, 1.0)]]


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (lambda texts: pandas.DataFrame({"text": texts}), "DataFrame"),
        (dict.fromkeys, "dict"),
        (set, "set"),
        (iter, "list_iterator"),
        (lambda texts: pandas.Series([*texts, float("nan")]), "float"),
    ],
)
def test_other_kinds_of_sentences_are_errors(kind, what, fresh):
    fresh.build_index(CORPUS)
    for call in (fresh.encode, fresh.search, fresh.build_index, lambda texts: fresh.similarity(texts, CORPUS)):
        with pytest.raises(UserError, match=f"a list of strings: found {what}$"):
            call(kind(QUERIES))


def test_the_docstring_example_is_correct():
    assert doctest.testmod(api).attempted == 4 and doctest.testmod(api).failed == 0


def test_a_search_without_an_index_and_an_unknown_device_are_errors(fresh):
    with pytest.raises(UserError, match="there is no index: call build_index"):
        fresh.search("x")
    with pytest.raises(UserError, match="device=gpu: "):
        fresh.encode("x", device="gpu")


def test_an_index_stays_if_the_next_one_cannot_be_built(fresh):
    fresh.build_index(CORPUS)
    with pytest.raises(UserError, match="no file"):
        fresh.build_index("missing.txt")
    assert len(fresh.index) == len(CORPUS)


def test_an_index_can_be_sent_to_other_processes(fresh):
    fresh.build_index(SENTENCES)
    sent = pickle.loads(pickle.dumps(fresh))
    assert sent.search(SENTENCES[0]) == fresh.search(SENTENCES[0])


def test_vectors_must_be_finite(fresh):
    fresh.build_index(CORPUS)
    torch.nn.init.constant_(fresh.encoder.backbone.embeddings.LayerNorm.weight, torch.nan)
    for call in (fresh.encode, fresh.search, fresh.build_index, lambda texts: fresh.similarity(texts, texts)):
        with pytest.raises(UserError, match="a vector that is not finite"):
            call(QUERIES)


def test_an_index_is_loaded_with_the_settings_that_made_it(fresh, tmp_path, make_model):
    fresh.build_index(["A dog."])  # too short for its vector to depend on max_length
    fresh.save_index(tmp_path / "index")
    folder, trained = make_model("bert"), SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")
    with torch.no_grad():
        trained.backbone.embeddings.word_embeddings.weight[-1] += 1e-3  # of a word that is not in the sentence
    trained.save_pretrained(tmp_path / "trained")
    for other, differs in (
        (SimCSE(folder, pooling="mean", max_length=8, device="cpu"), "max_length=64, but the encoder has max_length=8"),
        (SimCSE(folder, pooling="cls", device="cpu"), "pooling=mean, but the encoder has pooling=cls"),
        (SimCSE(tmp_path / "trained", device="cpu"), f"the encoder {folder}, whose weights were others"),
    ):
        with pytest.raises(UserError, match=f"index was built with {differs}.*or build the index again$"):
            other.load_index(tmp_path / "index")


def test_an_index_of_word_vectors_belongs_to_their_words(tmp_path):
    """Two files have the same vectors."""
    for name, words in (("one.txt", ("cat", "dog")), ("other.txt", ("dog", "cat"))):
        (tmp_path / name).write_text("".join(f"{word} {x} {1 - x}\n" for x, word in enumerate(words)))
    one, other = (SimCSE(tmp_path / name) for name in ("one.txt", "other.txt"))
    one.build_index(["cat", "dog"])
    one.save_index(tmp_path / "index")
    one.load_index(tmp_path / "index")
    with pytest.raises(UserError, match="whose weights were others"):
        other.load_index(tmp_path / "index")


def test_queries_and_the_sentences_of_an_index_have_their_prompts(make_model, tmp_path):
    """They are `query` and `document`, or those that are named; an index keeps that of its sentences."""
    prompts = {"query": "dogs ", "document": "snow ", "other": "a "}
    SentenceEncoder.from_pretrained(make_model("bert"), "mean", prompts=prompts).save_pretrained(tmp_path)
    simcse = SimCSE(tmp_path, device="cpu")

    def similarity(query, document):
        return simcse.similarity(prompts[query] + QUERIES[0], prompts[document] + CORPUS[0])

    for given, name in ((None, "document"), ("other", "other")):
        simcse.build_index(CORPUS[1:], prompt_name=given)
        simcse.save_index(tmp_path / f"index_{name}")
        simcse.load_index(tmp_path / f"index_{name}")
        simcse.add_to_index(CORPUS[:1])
        for asked, query in ((None, "query"), ("other", "other")):
            found = dict(simcse.search(QUERIES[0], threshold=None, top_k=9, prompt_name=asked))
            assert found[CORPUS[0]] == pytest.approx(similarity(query, name), abs=1e-5)
