"""Contrastive Tension: both encoders are alike; its schedule. tests/fidelity has its loss."""

import pytest
import torch

from simcse_pl.methods.contrastive_tension import ContrastiveTension, stepwise_schedule


def test_the_two_encoders_can_be_exchanged():
    """The saved encoder is as good as the other one; in reverse order, the next rows are those before."""
    first, second = torch.randn(2, 6, 4, dtype=torch.float64)
    loss = ContrastiveTension(negatives=3)
    torch.testing.assert_close(loss(first, second), loss(second.flip(0), first.flip(0)))
    assert loss(first, second) != loss(second, first)


def test_the_learning_rates_are_those_of_the_released_code():
    optimizer = torch.optim.RMSprop([torch.zeros(1, requires_grad=True)], lr=1e-5)
    schedule = stepwise_schedule(optimizer)
    rates = []
    for step in range(3001):
        if step % 500 == 0:
            rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([1e-5, 8e-6, 6e-6, 4e-6, 2e-6, 2e-6, 2e-6])
