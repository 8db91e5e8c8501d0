"""Retrieval: its input and its results."""

import json

import pytest
import torch

from simcse_pl.evaluation.retrieval import RetrievalTask
from simcse_pl.utils.errors import UserError


def encode(sentences):
    """Map sentences onto the circle: the angle of a sentence is its length."""
    angles = torch.tensor([len(sentence) * 0.1 for sentence in sentences])
    return torch.stack([angles.cos(), angles.sin()], dim=1) * 3


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("a\naa\naaaa\naaaaaaaa\naa\n")
    return path


def test_results_are_plain_values_in_the_order_of_the_queries(corpus, tmp_path):
    (tmp_path / "queries.txt").write_text("aaa\naaaaa\n")
    result = RetrievalTask(corpus, str(tmp_path / "queries.txt"), top_k=2)(encode)
    found = json.loads(json.dumps(result.model_dump()))
    first, second = found.pop("queries")
    assert found == {"corpus": str(corpus), "sentences": 4}
    assert (first["query"], second["query"]) == ("aaa", "aaaaa")
    similarities = {neighbour["sentence"]: neighbour["similarity"] for neighbour in first["neighbours"]}
    assert similarities == pytest.approx({"aa": 0.995004, "aaaa": 0.995004}, abs=1e-5)


def test_no_queries_are_an_error(corpus):
    with pytest.raises(UserError, match="retrieval.queries is empty"):
        RetrievalTask(corpus, [])
