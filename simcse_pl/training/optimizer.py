"""Optimizer and learning rate schedule, from any of torch's and transformers'."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

MakeOptimizer = Callable[..., Optimizer]  # of parameters or of groups of them
MakeSchedule = Callable[..., LRScheduler]  # of an optimizer

_STEPS = ("num_training_steps", "total_steps", "T_max", "total_iters")  # how schedules name the number of steps


def build_optimizer(optimizer: MakeOptimizer, parameters: Sequence[Any], gradient_scaler: bool = False) -> Optimizer:
    """Return the optimizer of parameters or groups of them.

    Adam and AdamW are fused (one kernel for all parameters) unless the config sets `fused`, `foreach` or
    `differentiable`, which exclude each other. A gradient scaler cannot clip for a fused optimizer.
    """
    target = getattr(optimizer, "func", optimizer)
    adam = inspect.isclass(target) and issubclass(target, torch.optim.Adam)
    given = options_of(optimizer)
    can_fuse = adam and "fused" in inspect.signature(target).parameters
    fused = given.get("fused", can_fuse and not (given.get("foreach") or given.get("differentiable")))
    return optimizer(parameters, **({"fused": not gradient_scaler} if fused else {}))


def build_schedule(scheduler: MakeSchedule | None, optimizer: Optimizer, total_steps: int) -> LRScheduler | None:
    """Return the schedule, which gets the number of steps unless the config sets it."""
    if scheduler is None:
        return None
    names = [name for name in _STEPS if name in inspect.signature(scheduler).parameters]
    return scheduler(optimizer, **{name: total_steps for name in names if name not in options_of(scheduler)})


def options_of(make: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the options that a config sets of an optimizer or a schedule."""
    return make.keywords if isinstance(make, partial) else {}
