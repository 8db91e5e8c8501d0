"""Clusters of rows: those of k-means, computed once, of the rows that are trained on; a run by them resumes."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from simcse_pl.data.clusters import Clusters
from simcse_pl.data.training_set import TrainingSet
from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import SENTENCES
from tests.helpers import composed
from tests.runs import assert_resumed_to_the_bit, fit


@pytest.fixture
def read(write, tokenizer):
    """Read 60 pairs whose anchors are alike if their first sentence is."""

    def make(**options):
        rows = [(f"{SENTENCES[i % 3]} {i % 2}", f"number {i}") for i in range(60)]
        own = TrainingSet(write(*rows), header=False, batch_size=4, **options)
        own.read(tokenizer, 16)
        return own

    return make


def test_similar_anchors_are_a_cluster_and_the_cache_keeps_them(read, teacher, monkeypatch):
    own = read(sampler=Clusters(teacher, clusters=3), limit=48, hold_out=6)
    topics = [int(row) % 3 for row in own.chosen]
    assert adjusted_rand_score(topics, own.groups) == 1
    monkeypatch.setattr(SentenceEncoder, "encode", None)
    np.testing.assert_array_equal(read(sampler=Clusters(teacher, clusters=3), limit=48, hold_out=6).groups, own.groups)


@pytest.mark.filterwarnings("ignore")
def test_a_run_by_clusters_resumes_to_the_bit(make_model, teacher, sentences, pairs, tmp_path):
    sampler = ["data/sampler=clusters", f"data.sampler.encoder={teacher}", "data.sampler.clusters=2"]
    files = ["data=text", f"data.train={sentences}", f"data.validation={pairs}", "data.test=null"]
    run = ["trainer=cpu", "trainer.max_steps=5", "data.batch_size=3", "model=bert", f"model.name={make_model('bert')}"]
    config = composed(*sampler, *files, *run)
    assert_resumed_to_the_bit(config, *fit(config), tmp_path)
