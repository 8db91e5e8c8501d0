"""Code of the user's own in place of the project's: module, optimizer, schedule, evaluator and pooling."""

import sys
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from simcse_pl.cli.train import build_module
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.optimizer import build_optimizer, build_schedule
from simcse_pl.utils.errors import UserError
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


class WithMargin(SimCSEModule):
    def __init__(self, encoder, objective, optimizer, scheduler, margin=0.5):
        super().__init__(encoder, objective, optimizer, scheduler)
        self.margin = margin


class NoEncoder(pl.LightningModule):
    def __init__(self, **parts):
        super().__init__()


WITH_MARGIN, NO_ENCODER = f"{__name__}.WithMargin", f"{__name__}.NoEncoder"


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


def test_a_module_needs_arguments_only_for_what_the_config_has(make_model):
    config = composed(*tiny(make_model("bert")))
    encoder = instantiate(config.model)
    config.module = {"_target_": WITH_MARGIN, "_partial_": True, "margin": 0.25}
    assert build_module(config, encoder).margin == 0.25
    config.module = {"_target_": NO_ENCODER, "_partial_": True}
    with pytest.raises(UserError, match=f"^module._target_={NO_ENCODER}: it must be a SimCSEModule$"):
        build_module(config, encoder)
    config.module = {"_target_": WITH_MARGIN, "_partial_": True}
    OmegaConf.set_struct(config, False)
    config.queue = {"_target_": "simcse_pl.losses.momentum_queue.MomentumQueue", "size": 4}
    with pytest.raises(UserError, match=f"^module._target_={WITH_MARGIN}: got an unexpected keyword argument 'queue'$"):
        build_module(config, encoder)


def test_a_pooling_can_be_in_the_current_folder(command, make_model, tmp_path, monkeypatch):
    """Only the name of a function lets Python find files of this folder, which may be a downloaded model."""
    (tmp_path / "my_poolings.py").write_text("def first(states, inputs):\n    return states[-1][:, 0]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])  # as in the script simcse
    info = "info", make_model("bert"), "--json", "--pooling"
    command(*info, "mean")
    assert str(Path.cwd()) not in sys.path
    assert '"pooling": "my_poolings.first"' in command(*info, "my_poolings.first").out
