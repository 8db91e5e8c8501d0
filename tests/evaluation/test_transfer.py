"""SentEval's protocols against SentEval's own loops, with one fit at a time, and a reference score on real data."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from simcse_pl.data.senteval.transfer_sets import Example, TransferTask
from simcse_pl.evaluation.transfer import evaluate_transfer

DIM = 6
C_GRID = [2.0**power for power in range(-2, 4)]
C_GRID_WITH_TEST = [2.0**power for power in range(-1, 6)]
DECAYS = [1e-5, 1e-4, 1e-3, 1e-2]


def vector(sentence):
    number, label = int(sentence.split()[0]), int(sentence[-1])
    return torch.randn(DIM, generator=torch.Generator().manual_seed(number)) + torch.eye(DIM)[label] * 1.2


def encode(sentences):
    return torch.stack([vector(sentence) for sentence in sentences])


def examples(count, classes, start=0):
    return [Example((f"{i} of class {i % classes}",), i % classes) for i in range(start, start + count)]


def pairs(count, start=0):
    return [Example((f"{i} first 0", f"{i * 7 + 1} second {i % 2}"), i % 2) for i in range(start, start + count)]


def data(rows):
    """Return the features and the labels of rows."""
    x = u = encode([row.sentences[0] for row in rows]).double().numpy()
    if len(rows[0].sentences) == 2:
        v = encode([row.sentences[1] for row in rows]).double().numpy()
        x = np.concatenate([np.abs(u - v), u * v], axis=1)
    return x, np.array([row.label for row in rows])


def scikit_learn(x, y, c, stop_by=None):
    return LogisticRegression(C=c, tol=1e-10, max_iter=10_000).fit(x, y)


class PyTorch:
    """SentEval's classifier, with torch.nn and torch.optim; without `stop_by`, 5 % of the rows stop training."""

    def __init__(self, x, y, decay, stop_by=None):
        random = np.random.RandomState(1111)
        torch.manual_seed(1111)
        self.layer = torch.nn.Linear(x.shape[1], int(y.max()) + 1)
        adam = torch.optim.Adam(self.layer.parameters(), weight_decay=decay)
        if stop_by is None:
            order = random.permutation(len(x))
            held = len(x) // 20
            stop_by, x, y = (x[order[:held]], y[order[:held]]), x[order[held:]], y[order[held:]]
        best, missed, epochs = -1, 0, 0
        while epochs <= 200 and missed <= 5:
            for _ in range(4):
                for batch in np.array_split(random.permutation(len(x)), range(64, len(x), 64)):
                    logits = self.layer(torch.tensor(x[batch]).float())
                    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(y[batch]))
                    adam.zero_grad()
                    loss.backward()
                    adam.step()
            epochs += 4
            if (accuracy := self.score(*stop_by)) > best:
                best, weights = accuracy, {name: own.clone() for name, own in self.layer.state_dict().items()}
            else:
                missed += 1
        self.layer.load_state_dict(weights)

    def predict(self, x):
        return self.layer(torch.tensor(x).float()).argmax(dim=1).numpy()

    def score(self, x, y):
        return float((self.predict(x) == y).mean())


def best_of(fit, grid, fits):
    """Return the value with the best mean score over the fits (x, y, held-out x, y), and that score."""
    scores = [round(100 * np.mean([fit(x, y, c, held).score(*held) for x, y, *held in fits]), 2) for c in grid]
    return grid[int(np.argmax(scores))], max(scores) / 100


def folds(x, y):
    splits = StratifiedKFold(n_splits=10, shuffle=True, random_state=1111).split(x, y)
    return [(x[fit], y[fit], x[held], y[held]) for fit, held in splits]


def test_nested_cross_validation():
    rows = examples(160, classes=2)
    devs, tests = [], []
    for x, y, *test in folds(*data(rows)):
        c, dev = best_of(scikit_learn, C_GRID, folds(x, y))
        devs.append(dev)
        tests.append(scikit_learn(x, y, c).score(*test))
    result = evaluate_transfer(encode, TransferTask("MR", {"all": rows}))
    assert (result.task, result.rows, result.f1, result.classifier) == ("MR", 160, None, "scikit-learn")
    assert result.protocol == "10-fold nested cross-validation"
    assert result.accuracy == pytest.approx(np.mean(tests), abs=1e-9)
    assert result.dev_accuracy == pytest.approx(np.mean(devs), abs=1e-4)
    assert 0.6 < result.accuracy < 1


@pytest.mark.parametrize(
    ("name", "fit", "grid", "count"),
    [("scikit-learn", scikit_learn, C_GRID_WITH_TEST, 180), ("pytorch", PyTorch, DECAYS, 92)],
)
@pytest.mark.parametrize("make", [partial(examples, classes=3), pairs])
def test_cross_validation_on_train(make, name, fit, grid, count):
    train, test = make(count), make(900, start=500)
    value, dev = best_of(fit, grid, folds(*data(train)))
    best, (x, y) = fit(*data(train), value), data(test)
    result = evaluate_transfer(encode, TransferTask("TREC", {"train": train, "test": test}), classifier=name)
    assert (result.accuracy, result.dev_accuracy) == pytest.approx((best.score(x, y), dev))
    assert (result.rows, result.classifier, result.protocol) == (900, name, "10-fold cross-validation")
    assert result.f1 == (pytest.approx(f1_score(y, best.predict(x))) if make is pairs else None)


@pytest.mark.parametrize(
    ("name", "fit", "grid"), [("scikit-learn", scikit_learn, C_GRID), ("pytorch", PyTorch, DECAYS)]
)
def test_dev_split(name, fit, grid):
    splits = {"train": examples(200, 2), "dev": examples(100, 2, 300), "test": examples(150, 2, 500)}
    train, dev, test = map(data, splits.values())
    value, score = best_of(fit, grid, [(*train, *dev)])
    result = evaluate_transfer(encode, TransferTask("SST", splits), classifier=name)
    assert (result.accuracy, result.dev_accuracy) == pytest.approx((fit(*train, value, dev).score(*test), score))
    assert (result.rows, result.protocol) == (150, "dev split")
