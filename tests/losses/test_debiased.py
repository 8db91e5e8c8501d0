"""DCLR's loss and its noise against their formulas in plain loops."""

import pytest
import torch

from simcse_pl.losses.debiased import DebiasedObjective
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.frozen_encoder import FrozenEncoder
from simcse_pl.models.roles import Role

ANCHOR, POSITIVE, NEGATIVE, OTHER = Role
T = 0.05


def cosine(first, second):
    return (first * second).sum() / first.square().sum().sqrt() / second.square().sum().sqrt()


def softmax(scores):
    total = sum(score.exp() for score in scores)
    return [score.exp() / total for score in scores]


def moved(noise, anchors, positives, steps, size):
    """Move each vector along its gradient of the cross-entropy that has it as a negative."""
    for _ in range(steps):
        noise = noise.detach().requires_grad_()
        loss = 0
        for i, anchor in enumerate(anchors):
            scores = [cosine(anchor, key) / T for key in [*positives, *noise]]
            loss = loss - softmax(scores)[i].log() / len(anchors)
        gradient = torch.autograd.grad(loss, noise)[0]
        noise = torch.stack([n + size * g / g.square().sum().sqrt() for n, g in zip(noise, gradient, strict=True)])
    return noise.detach()


def dclr(pairs, guided, noise, threshold):
    """Return the mean cross-entropy of every probability; a punished cosine becomes 0, so that it keeps exp(0)."""
    m, loss, punished = len(pairs), 0, 0
    for i in range(m):
        scores = []
        for j in range(m):
            near = i != j and cosine(guided[i, 0], guided[j, 1]) > threshold
            scores.append(pairs.new_zeros(()) if near else cosine(pairs[i, 0], pairs[j, 1]) / T)
            punished += near
        scores += [cosine(pairs[i, 0], one) / T for one in noise]
        for j, probability in enumerate(softmax(scores)):
            loss = loss - (probability if i == j else 1 - probability).log() / (m * len(scores))
    return loss, punished


def objective_of(guided, monkeypatch, **options):
    monkeypatch.setattr(FrozenEncoder, "__init__", lambda self, name: torch.nn.Module.__init__(self))
    monkeypatch.setattr(FrozenEncoder, "embed", lambda self, batch: guided)
    monkeypatch.setattr(FrozenEncoder, "_apply", lambda self, *_: self)
    return DebiasedObjective("guide", **options)


@pytest.mark.parametrize("ratio", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("threshold", [-0.2, 0.3, 1.0])
def test_the_loss_and_its_gradient_are_those_of_the_formula(threshold, ratio, monkeypatch):
    pairs = torch.randn(5, 2, 6, dtype=torch.float64)
    pairs[:, 1] += 0.7 * pairs[:, 0]
    pairs.requires_grad_()
    guided = torch.randn(5, 2, 6, dtype=torch.float64)
    options = {"threshold": threshold, "noise_ratio": ratio, "noise_step_size": 0.3, "noise_steps": 3}
    objective = objective_of(guided, monkeypatch, **options)
    torch.manual_seed(7)
    loss = objective(EmbeddedBatch(pairs, (ANCHOR, POSITIVE), {}))
    torch.manual_seed(7)
    noise = torch.empty(int(5 * ratio), 6, dtype=torch.float64).normal_()
    noise = moved(noise, *pairs.detach().unbind(dim=1), steps=3 if ratio else 0, size=0.3)
    expected, punished = dclr(pairs, guided, noise, threshold)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    own, other = (torch.autograd.grad(one, pairs)[0] for one in (loss, expected))
    torch.testing.assert_close(own, other, rtol=1e-8, atol=1e-12)
    assert own.norm() > 0.01
    torch.manual_seed(7)
    with torch.inference_mode():  # as for held-out rows
        torch.testing.assert_close(objective(EmbeddedBatch(pairs.clone(), (ANCHOR, POSITIVE), {})), loss.detach())
    assert (punished > 0) == (threshold < 1) and objective.curves["masked_negatives"] == pytest.approx(punished / 20)


def test_a_probability_of_one_has_a_finite_loss_and_gradient(monkeypatch):
    pairs = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]], requires_grad=True)
    objective = objective_of(torch.eye(2)[None].repeat(2, 1, 1), monkeypatch, noise_ratio=0.0, temperature=0.01)
    loss = objective(EmbeddedBatch(pairs, (ANCHOR, POSITIVE), {}))
    loss.backward()
    assert loss.isfinite() and pairs.grad.isfinite().all() and loss > 10
