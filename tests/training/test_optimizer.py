"""The learning rate of each step."""

import pytest
import torch

from simcse_pl.utils.errors import UserError
from tests.conftest import adamw


def rates(settings, steps):
    optimizer, schedule = settings.build([torch.nn.Parameter(torch.ones(1))], steps)
    seen = []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return seen


def test_the_learning_rate_falls_linearly_to_zero():
    assert rates(adamw(lr=1.0), 4) == pytest.approx([1.0, 0.75, 0.5, 0.25])


def test_the_learning_rate_rises_during_warmup():
    assert rates(adamw(lr=1.0, warmup_steps=2), 6) == pytest.approx([0, 0.5, 1.0, 0.75, 0.5, 0.25])


def test_no_weight_decay_by_default():
    optimizer, _ = adamw().build([torch.nn.Parameter(torch.ones(1))], 1)
    assert optimizer.defaults["weight_decay"] == 0


@pytest.mark.parametrize("name", ["lr", "weight_decay", "warmup_steps"])
def test_values_out_of_range_are_errors(name):
    with pytest.raises(UserError, match=f"optimizer.{name}=-1"):
        adamw(**{name: -1})
