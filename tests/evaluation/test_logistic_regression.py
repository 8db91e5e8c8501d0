"""The batched classifiers against scikit-learn's, one at a time and to a tight tolerance."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from simcse_pl.evaluation.logistic_regression import fit_predict

N, DIM = 240, 12


def data(classes, seed=0):
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(N, DIM))
    features = noise * np.geomspace(0.1, 10, DIM) + rng.normal(size=DIM) * 5
    labels = (noise @ rng.normal(size=(DIM, classes)) + rng.gumbel(size=(N, classes)) * 2).argmax(axis=1)
    return torch.tensor(features, dtype=torch.float32), torch.tensor(labels)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_every_problem_predicts_as_scikit_learns_classifier_does(classes):
    features, labels = data(classes)
    strengths = torch.tensor([2.0**power for power in range(-6, 6)])
    fit_rows = torch.rand(len(strengths), N, generator=torch.Generator().manual_seed(1)) < 0.7
    predicted = fit_predict(features, labels, strengths, fit_rows)
    assert predicted.shape == (len(strengths), N)
    for own, strength, rows in zip(predicted, strengths, fit_rows, strict=True):
        reference = LogisticRegression(C=float(strength), tol=1e-7, max_iter=10_000)
        reference.fit(features[rows].double().numpy(), labels[rows].numpy())
        agree = (reference.predict(features.double().numpy()) == own.numpy()).mean()
        assert agree > 0.99  # one or two rows in 240 may lie on a border
    assert len({tuple(own.tolist()) for own in predicted}) > 1


def test_problems_do_not_touch_each_other():
    features, labels = data(2)
    rows = torch.rand(3, N, generator=torch.Generator().manual_seed(2)) < 0.5
    strengths = torch.tensor([0.1, 1.0, 10.0])
    together = fit_predict(features, labels, strengths, rows)
    for i in range(3):
        alone = fit_predict(features, labels, strengths[i : i + 1], rows[i : i + 1])
        assert (together[i] == alone[0]).float().mean() > 0.99


def test_rows_that_are_not_fitted_on_do_not_matter():
    features, labels = data(2)
    rows = torch.arange(N) < 200
    flipped = torch.where(rows, labels, 1 - labels)
    strengths = torch.tensor([1.0])
    first, second = (fit_predict(features, own, strengths, rows[None]) for own in (labels, flipped))
    assert torch.equal(first, second)


@pytest.mark.parametrize("classes", [2, 4])
def test_classes_that_can_be_told_apart_and_a_weak_penalty(classes):
    labels = torch.arange(60) % classes
    features = torch.eye(classes)[labels] * 100 + torch.randn(60, classes, generator=torch.Generator().manual_seed(0))
    predicted = fit_predict(features, labels, torch.tensor([1e9, 32.0]), torch.ones(2, 60, dtype=torch.bool))
    assert (predicted == labels).all()


def test_more_dimensions_than_rows_and_dimensions_that_do_not_vary():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(30) % 2
    features = torch.cat([torch.randn(30, 80, generator=generator), torch.ones(30, 3)], dim=1)
    rows = torch.ones(1, 30, dtype=torch.bool)
    predicted = fit_predict(features, labels, torch.tensor([1.0]), rows)[0]
    reference = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(features.double().numpy(), labels.numpy())
    assert np.array_equal(predicted.numpy(), reference.predict(features.double().numpy()))


def test_features_that_say_nothing_give_the_larger_class():
    labels = torch.tensor([0] * 20 + [1] * 10)
    predicted = fit_predict(torch.zeros(30, 4), labels, torch.tensor([1.0]), torch.ones(1, 30, dtype=torch.bool))
    assert (predicted == 0).all()
