"""Code of the user's own in place of the project's: module, optimizer, schedule, evaluator and pooling."""

import sys
from pathlib import Path

import torch
from hydra.utils import instantiate

from simcse_pl.cli.train import build_module
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.optimizer import build_optimizer, build_schedule
from tests.conftest import tiny
from tests.helpers import composed


class Optimizer(torch.optim.SGD):
    pass


class Schedule(torch.optim.lr_scheduler.LinearLR):
    pass


class Evaluator(ScoredPairs):
    pass


class Module(SimCSEModule):
    pass


def test_classes_of_ones_own_are_options(make_model):
    targets = {"module": "Module", "optimizer": "Optimizer", "scheduler": "Schedule", "evaluators.sts": "Evaluator"}
    given = [f"{part}._target_={__name__}.{name}" for part, name in targets.items()]
    config = composed(*given, "~scheduler.num_warmup_steps", "+optimizer.nesterov=true", *tiny(make_model("bert")))
    config.optimizer = dict(config.optimizer) | {"momentum": 0.9}
    module = build_module(config, instantiate(config.model))
    optimizer = build_optimizer(module.optimizer, [torch.nn.Parameter(torch.ones(1))])
    schedule = build_schedule(module.scheduler, optimizer, total_steps=3)
    evaluator = instantiate(config.evaluators)["sts"](["sample"], None)
    assert [type(part) for part in (module, optimizer, schedule, evaluator)] == [Module, Optimizer, Schedule, Evaluator]


def test_a_pooling_can_be_in_the_current_folder(command, make_model, tmp_path, monkeypatch):
    """Only the name of a function lets Python find files of this folder, which may be a downloaded model."""
    (tmp_path / "my_poolings.py").write_text("def first(states, inputs):\n    return states[-1][:, 0]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])  # as in the script simcse
    info = "info", make_model("bert"), "--json", "--pooling"
    command(*info, "mean")
    assert str(Path.cwd()) not in sys.path
    assert '"pooling": "my_poolings.first"' in command(*info, "my_poolings.first").out
