"""Retrieval: its input and its results."""

import json

import pytest
import torch

from simcse_pl.evaluation.retrieval import RetrievalTask


def encode(sentences):
    """Map sentences onto the circle: the angle of a sentence is its length."""
    angles = torch.tensor([len(sentence) * 0.1 for sentence in sentences])
    return torch.stack([angles.cos(), angles.sin()], dim=1) * 3


def test_results_are_plain_values_in_the_order_of_the_queries(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a\naa\naaaa\naaaaaaaa\naa\n")
    (tmp_path / "queries.txt").write_text("aaa\naaaaa\n")
    result = RetrievalTask(corpus, str(tmp_path / "queries.txt"), top_k=2)(encode)
    found = json.loads(json.dumps(result.model_dump()))
    first, second = found.pop("queries")
    assert found == {"corpus": str(corpus), "sentences": 4}
    assert (first["query"], second["query"]) == ("aaa", "aaaaa")
    similarities = {neighbour["sentence"]: neighbour["similarity"] for neighbour in first["neighbours"]}
    assert similarities == pytest.approx({"aa": 0.995004, "aaaa": 0.995004}, abs=1e-5)
