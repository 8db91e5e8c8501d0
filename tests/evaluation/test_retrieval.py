"""Searches: what is read of files and checked before, and what becomes the results of an evaluation."""

import json
from dataclasses import asdict

import pytest
import torch

from simcse_pl.evaluation.retrieval import Search
from simcse_pl.inference.sentence_index import SentenceIndex
from simcse_pl.utils.errors import UserError

LENGTHS = ["a", "aa", "aaaa", "aaaaaaaa"]


class Encode:
    """On the circle, an angle for every letter of a sentence; counts what it is asked for."""

    def __init__(self, angle=0.1):
        self.angle = angle
        self.asked = []

    def __call__(self, sentences):
        self.asked += sentences
        angles = torch.tensor([len(sentence) * self.angle for sentence in sentences])
        return torch.stack([angles.cos(), angles.sin()], dim=1) * 3


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join([*LENGTHS, "aa"]) + "\n")
    return path


def test_results_are_plain_and_the_nearest_come_first(corpus):
    result = Search(corpus, ["aaa"], count=2)(Encode())
    found = json.loads(json.dumps(asdict(result)))
    (query,) = found.pop("queries")
    assert found == {"corpus": str(corpus), "sentences": 4}
    assert query["query"] == "aaa"
    assert [neighbour["similarity"] for neighbour in query["neighbours"]] == pytest.approx([0.995004] * 2, abs=1e-5)
    assert {neighbour["sentence"] for neighbour in query["neighbours"]} == {"aa", "aaaa"}


def test_queries_from_a_file(corpus, tmp_path):
    (tmp_path / "queries.txt").write_text("aaa\naaaaa\n")
    result = Search(corpus, str(tmp_path / "queries.txt"), count=1)(Encode())
    assert [(one.query, one.neighbours[0]["sentence"]) for one in result.queries][1] == ("aaaaa", "aaaa")


def test_a_kept_index_is_not_encoded_again(corpus, tmp_path):
    search = Search(corpus, ["aaa"], folder=tmp_path / "index")
    first = search(Encode())
    encode = Encode()
    assert search(encode) == first
    assert sorted(encode.asked) == ["a", "aaa", "a" * 8]  # the first, the query and the longest


def test_a_kept_index_of_something_else_is_refused(corpus, tmp_path):
    SentenceIndex.build(Encode(), ["a", "b"]).save(tmp_path / "index")
    with pytest.raises(UserError, match="retrieval.folder: .*index holds an index of another corpus$"):
        Search(corpus, ["aaa"], folder=tmp_path / "index")(Encode())
    Search(corpus, ["aaa"], folder=tmp_path / "own")(Encode())
    with pytest.raises(UserError, match="another encoder"):
        Search(corpus, ["aaa"], folder=tmp_path / "own")(Encode(angle=1.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "retrieval.count=0: it must be at least 1"),
        ({"queries": []}, "retrieval.queries is empty"),
        ({"queries": "nowhere.txt"}, "no file nowhere.txt"),
        ({"corpus": "nowhere.txt"}, "no file nowhere.txt"),
    ],
)
def test_mistakes_are_told_before_anything_is_encoded(arguments, message, corpus):
    with pytest.raises(UserError, match=message):
        Search(**({"corpus": corpus, "queries": ["aaa"]} | arguments))
