"""Parameter groups, optimizer and learning rate schedule, from any of torch's and transformers'."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError

MakeOptimizer = Callable[..., Optimizer]  # of parameters or of groups of them
MakeSchedule = Callable[..., LRScheduler]  # of an optimizer

_STEPS = ("num_training_steps", "total_steps", "T_max", "total_iters")  # how schedules name the number of steps
_LAYER = re.compile(r"\.(?:layers?|h|blocks?)\.(\d+)\.")


def learning_rate(optimizer: MakeOptimizer) -> float | None:
    """Return the learning rate that a config sets; None for the optimizer's default."""
    return _settings(optimizer).get("lr")


def build_optimizer(optimizer: MakeOptimizer, parameters: Sequence[Any], gradient_scaler: bool = False) -> Optimizer:
    """Return the optimizer of parameters or groups of them.

    Adam and AdamW are fused (one kernel for all parameters) unless the config sets `fused`, `foreach` or
    `differentiable`, which exclude each other. A gradient scaler cannot clip for a fused optimizer.
    """
    target = getattr(optimizer, "func", optimizer)
    adam = inspect.isclass(target) and issubclass(target, torch.optim.Adam)
    given = _settings(optimizer)
    can_fuse = adam and "fused" in inspect.signature(target).parameters
    fused = given.get("fused", can_fuse and not (given.get("foreach") or given.get("differentiable")))
    return optimizer(parameters, **({"fused": not gradient_scaler} if fused else {}))


def build_schedule(scheduler: MakeSchedule | None, optimizer: Optimizer, total_steps: int) -> LRScheduler | None:
    """Return the schedule, which gets the number of steps unless the config sets it."""
    if scheduler is None:
        return None
    names = [name for name in _STEPS if name in inspect.signature(scheduler).parameters]
    return scheduler(optimizer, **{name: total_steps for name in names if name not in _settings(scheduler)})


def parameter_groups(
    module: nn.Module,
    encoders: Sequence[SentenceEncoder],
    optimizer: MakeOptimizer,
    layer_decay: float | None = None,
    no_weight_decay: Sequence[str] = (),
) -> list[Any]:
    """Return the parameters of a module, in groups with different settings.

    Args:
        module: its parameters are grouped.
        encoders: parts of the module, whose layers `layer_decay` counts.
        optimizer: makes the optimizer; `layer_decay` needs its learning rate.
        layer_decay: the learning rate of a layer is that of the layer above it times this factor. Parameters
            above the last layer have the optimizer's rate, and the word embeddings are below the first layer. None for
            one rate.
        no_weight_decay: parts of parameter names, in lower or upper case. Parameters whose name contains one of them
            have no weight decay.

    Returns:
        The parameters if neither option is set, otherwise groups, of which the first have the optimizer's rate.

    Raises:
        UserError: `layer_decay` is set, but the names of an encoder's parameters do not show its layers.
    """
    if layer_decay is None and not no_weight_decay:
        return list(module.parameters())
    lr = learning_rate(optimizer)
    if layer_decay is not None and lr is None:
        raise UserError("module.layer_decay needs optimizer.lr")
    depth = {number: below for own in encoders for number, below in _depths(own, layer_decay is not None).items()}
    groups: dict[tuple[int, bool], list[Parameter]] = {}
    for name, parameter in module.named_parameters():
        decays = not any(part.lower() in name.lower() for part in no_weight_decay)
        groups.setdefault((depth.get(id(parameter), 0), decays), []).append(parameter)
    settings = []
    for (below, decays), members in sorted(groups.items(), key=lambda item: (item[0][0], not item[0][1])):
        rate = {} if layer_decay is None or lr is None else {"lr": lr * layer_decay**below}
        settings.append({"params": members, **rate, **({} if decays else {"weight_decay": 0.0})})
    return settings


def _depths(encoder: SentenceEncoder, check: bool) -> dict[int, int]:
    """Return the number of layers at and above each parameter of a backbone, by id; the last layer has 1."""
    backbone = encoder.backbone
    layers = backbone.config.num_hidden_layers
    words = {id(parameter) for parameter in backbone.get_input_embeddings().parameters()}
    of_layers, of_words = {}, {}
    for name, parameter in backbone.named_parameters():
        if layer := _LAYER.search(f".{name}"):
            of_layers[id(parameter)] = layers - int(layer[1])
        elif id(parameter) in words or "embed" in name:
            of_words[id(parameter)] = layers + 1
    if check and {*of_layers.values()} != {*range(1, layers + 1)}:
        why = f"the parameter names of {backbone.config.model_type} do not show its layers"
        raise UserError(f"module.layer_decay: {why}: set it to null")
    return of_layers | of_words


def _settings(make: Callable[..., Any] | None) -> Mapping[str, Any]:
    return make.keywords if isinstance(make, partial) else {}
