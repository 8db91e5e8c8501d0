"""Clusters of rows: those of k-means, computed once, of the rows that are trained on."""

import numpy as np
from sklearn.metrics import adjusted_rand_score

from simcse_pl.data.training_set import TrainingSet
from simcse_pl.methods.clusters import Clusters
from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import SENTENCES


def test_similar_anchors_are_a_cluster_and_the_cache_keeps_them(write, tokenizer, teacher, monkeypatch):
    """Anchors are alike if their first sentence is."""
    rows = write(*((f"{SENTENCES[i % 3]} {i % 2}", f"number {i}") for i in range(60)))

    def clusters():
        own = TrainingSet(rows, header=False, limit=48, hold_out=6).read(tokenizer, 16)
        return own.chosen, Clusters(teacher, clusters=3)(own)

    chosen, found = clusters()
    assert adjusted_rand_score([int(row) % 3 for row in chosen], found) == 1
    monkeypatch.setattr(SentenceEncoder, "encode", None)
    np.testing.assert_array_equal(clusters()[1], found)


def test_fewer_rows_than_clusters_are_a_cluster_each(write, tokenizer, teacher):
    rows = TrainingSet(write(*((text, text) for text in SENTENCES[:3])), header=False).read(tokenizer, 16)
    assert sorted(Clusters(teacher, clusters=100)(rows)) == [0, 1, 2]
