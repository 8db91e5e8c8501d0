"""The batched classifiers against scikit-learn's, fitted one at a time with a small tolerance."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from simcse_pl.evaluation.logistic_regression import fit_predict
from simcse_pl.evaluation.pytorch_classifier import Problem

N, DIM = 240, 12


def data(classes):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(N, DIM))
    features = noise * np.geomspace(0.1, 10, DIM) + rng.normal(size=DIM) * 5
    labels = (noise @ rng.normal(size=(DIM, classes)) + rng.gumbel(size=(N, classes)) * 2).argmax(axis=1)
    return torch.tensor(features, dtype=torch.float32), torch.tensor(labels)


@pytest.mark.parametrize("classes", [2, 3])
def test_each_problem_predicts_like_scikit_learn(classes):
    features, labels = data(classes)
    c_grid = torch.tensor([2.0**power for power in range(-6, 6)])
    fit_rows = torch.rand(len(c_grid), N, generator=torch.Generator().manual_seed(1)) < 0.7
    problems = [
        Problem(rows.nonzero()[:, 0].numpy(), None, [c]) for rows, c in zip(fit_rows, c_grid.tolist(), strict=True)
    ]
    predicted = fit_predict(features, labels, problems)[:, 0]
    assert predicted.shape == (len(c_grid), N)
    for own, c, rows in zip(predicted, c_grid, fit_rows, strict=True):
        reference = LogisticRegression(C=float(c), tol=1e-7, max_iter=10_000)
        reference.fit(features[rows].double().numpy(), labels[rows].numpy())
        agree = (reference.predict(features.double().numpy()) == own).mean()
        assert agree > 0.99  # one or two rows of 240 may be on the boundary
    assert len({tuple(own.tolist()) for own in predicted}) > 1
