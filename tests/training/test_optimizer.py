"""Optimizers, schedules of the learning rate, and parameter groups."""

import math
from functools import partial

import pytest
import torch
import transformers
from hydra.utils import instantiate
from torch import nn

from simcse_pl.training.preparation import build_optimizer, build_schedule
from tests.conftest import adamw, linear
from tests.helpers import composed

COSINE = torch.optim.lr_scheduler.CosineAnnealingLR


def one_weight():
    return [nn.Parameter(torch.ones(1))]


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        (linear(), [1.0, 0.75, 0.5, 0.25]),
        (partial(transformers.get_cosine_schedule_with_warmup, num_warmup_steps=0), [1.0, 0.75, 0.25]),
        (COSINE, [0.5 + 0.5 * math.cos(math.pi * step / 5) for step in range(5)]),
        (partial(COSINE, T_max=2), [1.0, 0.5, 0.0]),
        (None, [1.0, 1.0]),
    ],
)
def test_schedules_get_the_number_of_steps_unless_they_have_one(scheduler, expected):
    optimizer = torch.optim.SGD(one_weight(), lr=1.0)
    schedule = build_schedule(scheduler, optimizer, len(expected))
    for rate in expected:
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate, abs=1e-9)
        optimizer.step()
        if schedule:
            schedule.step()


@pytest.mark.parametrize(
    ("optimizer", "fused", "scaled"),
    [
        (adamw(), True, False),
        (adamw(fused=False), False, False),
        (torch.optim.SGD, None, None),
        (partial(torch.optim.SGD, fused=True), True, False),
    ],
)
def test_adam_is_fused_without_a_gradient_scaler(optimizer, fused, scaled):
    assert build_optimizer(optimizer, one_weight()).defaults["fused"] is fused
    assert build_optimizer(optimizer, one_weight(), gradient_scaler=True).defaults["fused"] is scaled


@pytest.mark.parametrize(("choice", "last"), [("linear", 0.2), ("cosine", 0.0955), ("constant", 1.0)])
def test_every_schedule_warms_up_and_ends_as_its_name_says(choice, last):
    make = instantiate(composed(f"scheduler={choice}", "scheduler.num_warmup_steps=2").scheduler)
    optimizer = torch.optim.SGD(one_weight(), lr=1.0)
    schedule = build_schedule(make, optimizer, total_steps=7)
    rates = []
    for _ in range(7):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates[:3] == [0.0, 0.5, 1.0] and rates[-1] == pytest.approx(last, abs=1e-4)
