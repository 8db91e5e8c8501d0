"""Speed: what is measured, kept, and applied before training."""

import logging
import math

import pytest
import torch
from torch import nn

from simcse_pl.cpu import speed as module_of_speed
from simcse_pl.cpu.layers import FastDropout
from simcse_pl.cpu.speed import Speed
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.callbacks import CpuSpeed
from simcse_pl.training.module import SimCSEModule
from tests.conftest import adamw, quiet_trainer
from tests.tiny_models import ARCHITECTURES

MEASURE = Speed(tokens_per_pass=None, fast_dropout=None)


@pytest.fixture
def encoder(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", dropout=0.1)


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """Replace the timed passes by given seconds: `fixed` per pass, `token` per token, `torch` times that without."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given, passes = {"fixed": 1.0, "token": 0.01, "torch": 1.2}, []

    def seconds(layer, tokens, bf16):
        fast = any(isinstance(part, FastDropout) for part in layer.modules())
        passes.append(bf16)
        return (given["fixed"] + given["token"] * tokens) * (1 if fast else given["torch"])

    monkeypatch.setattr(module_of_speed, "_seconds", seconds)
    return given, passes


@pytest.mark.parametrize(("fixed", "cost"), [(1.0, 128), (3.0, 256), (0.01, 64), (100.0, math.inf)])
@pytest.mark.parametrize("torch_dropout", [1.2, 0.8])
def test_the_cost_of_a_pass_is_what_no_token_accounts_for(encoder, clock, fixed, cost, torch_dropout):
    given, _ = clock
    given |= {"fixed": fixed, "torch": torch_dropout}  # a pass costs 100 times `fixed` tokens, rounded to a power of 2
    assert MEASURE.measured(encoder.backbone, False) == Speed(cost, torch_dropout > 1)


def test_a_measurement_is_kept_for_a_machine_a_model_and_a_precision(encoder, make_model, clock):
    _, passes = clock
    first = MEASURE.measured(encoder.backbone, False)
    count = len(passes)
    assert MEASURE.measured(encoder.backbone, False) == first and len(passes) == count
    MEASURE.measured(encoder.backbone, True)
    assert len(passes) == 2 * count and passes[-1]
    other = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", dropout=0.2)
    MEASURE.measured(other.backbone, True)
    assert len(passes) == 3 * count


def test_a_given_value_is_not_replaced_by_a_measured_one(encoder, clock):
    assert Speed(512.0, None).measured(encoder.backbone, False) == Speed(512.0, True)
    _, passes = clock
    passes.clear()
    assert Speed(512.0, False).measured(encoder.backbone, False) == Speed(512.0, False) and not passes


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_layer_of_any_architecture_can_be_timed(architecture, make_model, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    backbone = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean").backbone
    state = torch.get_rng_state()
    found = MEASURE.measured(backbone, False)
    assert found.tokens_per_pass >= 64 and torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("compiled", [False, True])
def test_training_applies_the_choice_before_its_first_step(encoder, clock, compiled, caplog):
    caplog.set_level(logging.INFO)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), compile=compiled)
    module.prepare()
    assert not any(isinstance(part, FastDropout) for part in encoder.modules())
    CpuSpeed(MEASURE).setup(quiet_trainer(), module, "validate")
    assert encoder.groups.tokens_per_pass == (math.inf if compiled else 128)
    kinds = {type(part) for part in encoder.modules() if isinstance(part, nn.Dropout)}
    assert kinds == {nn.Dropout if compiled else FastDropout}
    groups, dropout = ("one padded batch", "torch") if compiled else ("a pass costs 128 tokens", "fast")
    assert f"{groups}; {dropout} dropout" in caplog.text
