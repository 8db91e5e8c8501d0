"""The learning rate of each step."""

import pytest
import torch

from simcse_pl.training.optimizer import LinearAdamW
from simcse_pl.utils.errors import UserError


@pytest.mark.parametrize(("warmup", "expected"), [(0, [1.0, 0.75, 0.5, 0.25]), (2, [0, 0.5, 1.0, 0.75, 0.5, 0.25])])
def test_the_learning_rate_rises_during_warmup_and_falls_linearly_to_zero(warmup, expected):
    settings = LinearAdamW(lr=1.0, warmup_steps=warmup)
    optimizer, schedule = settings.build([torch.nn.Parameter(torch.ones(1))], len(expected))
    assert optimizer.defaults["weight_decay"] == 0
    for rate in expected:
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("name", ["lr", "weight_decay", "warmup_steps"])
def test_values_out_of_range_are_errors(name):
    with pytest.raises(UserError, match=f"optimizer.{name}=-1"):
        LinearAdamW(**{name: -1})
