"""A task of three classes against SentEval's loops over fits; tests/fidelity has SentEval's scores of other tasks."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from simcse_pl.lab.transfer import Example, TransferTask

DIM = 6
C_GRID = [2.0**power for power in range(-1, 6)]


def encode(sentences):
    numbers = [(int(sentence.split()[0]), int(sentence[-1])) for sentence in sentences]
    rows = [torch.randn(DIM, generator=torch.Generator().manual_seed(number)) for number, _ in numbers]
    return torch.stack(rows) + 1.2 * torch.eye(DIM)[[label for _, label in numbers]]


def examples(count, start=0):
    return [Example((f"{i} of class {i % 3}",), i % 3) for i in range(start, start + count)]


def data(rows):
    return encode([row.sentences[0] for row in rows]).double().numpy(), np.array([row.label for row in rows])


def fit(x, y, c):
    return LogisticRegression(C=c, tol=1e-10, max_iter=10_000).fit(x, y)


@pytest.mark.parametrize("most_logits", [2**28, 1], ids=["together", "one by one"])
def test_cross_validation_on_train(most_logits, monkeypatch):
    monkeypatch.setattr("simcse_pl.lab.logistic_regression._MOST_LOGITS", most_logits)
    train, test = examples(180), examples(900, start=500)
    x, y = data(train)
    folds = [*StratifiedKFold(n_splits=10, shuffle=True, random_state=1111).split(x, y)]
    scores = [np.mean([fit(x[rows], y[rows], c).score(x[held], y[held]) for rows, held in folds]) for c in C_GRID]
    best = np.round(scores, 4).argmax()
    result = TransferTask("TREC", {"train": train, "test": test})(encode)
    assert result.accuracy == pytest.approx(fit(x, y, C_GRID[best]).score(*data(test)))
    assert result.dev_accuracy == pytest.approx(scores[best], abs=1e-4)
    assert (result.rows, result.f1, result.protocol) == (900, None, "10-fold cross-validation")
