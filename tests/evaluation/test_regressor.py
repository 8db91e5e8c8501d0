"""SentEval's regressor: its targets as in SentEval's code, its rounds, and what it learns."""

import numpy as np
import pytest
import torch

from simcse_pl.data.senteval.sts_sets import ScoredPair, StsTask
from simcse_pl.evaluation.regressor import _class_weights, evaluate_with_regressor
from simcse_pl.results.evaluation_results import Correlation


@pytest.mark.parametrize("score", [0.0, 0.4, 1.0, 1.5, 3.2, 4.75, 5.0])
def test_targets_are_sentevals(score):
    expected = np.zeros(5)
    for i in range(5):
        if i + 1 == np.floor(score) + 1:
            expected[i] = score - np.floor(score)
        if i + 1 == np.floor(score):
            expected[i] = np.floor(score) - score + 1
    assert _class_weights(np.array([score]))[0].numpy() == pytest.approx(expected, abs=1e-6)


def vector(sentence):
    return torch.randn(8, generator=torch.Generator().manual_seed(int(sentence)))


def encode(sentences):
    return torch.stack([vector(sentence) for sentence in sentences])


def task(split, count, start):
    """Scores depend on one dimension of u * v: the regressor can learn them, and cosines say little about them."""
    pairs = []
    for i in range(start, start + 2 * count, 2):
        product = float(vector(str(i))[0] * vector(str(i + 1))[0])
        pairs.append(ScoredPair(str(i), str(i + 1), 1 + 4 / (1 + np.exp(-2 * product))))
    return StsTask("STS-B", split, {split: pairs})


TASKS = {"train": task("train", 200, 0), "dev": task("dev", 60, 1000), "test": task("test", 60, 2000)}


def test_it_learns_reproducibly_and_restores_the_random_state():
    state = torch.random.get_rng_state()
    first = evaluate_with_regressor(encode, TASKS)
    assert first.spearman > 0.85 and first.pearson > 0.85
    assert evaluate_with_regressor(encode, TASKS) == first
    assert torch.equal(torch.random.get_rng_state(), state)


def test_there_are_21_rounds_if_each_improves_on_dev(monkeypatch):
    """SentEval: `while self.nepoch <= self.maxepoch`, from 0 in steps of 50 to 1000."""
    scores = (Correlation(pearson=float(score)) for score in range(100))
    monkeypatch.setattr("simcse_pl.evaluation.regressor.correlation", lambda *_: next(scores))
    assert evaluate_with_regressor(encode, {split: task(split, 12, 0) for split in TASKS}).pearson == 21
