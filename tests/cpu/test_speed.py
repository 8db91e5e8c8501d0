"""Speed: what training on a CPU applies."""

import logging
import math

import pytest
from torch import nn

from simcse_pl.cpu import Speed
from simcse_pl.cpu.layers import FastDropout
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.callbacks import CpuSpeed
from simcse_pl.training.module import SimCSEModule
from tests.conftest import adamw, quiet_trainer


@pytest.mark.parametrize("compiled", [False, True])
def test_training_applies_the_choice_before_its_first_step(compiled, make_model, caplog):
    caplog.set_level(logging.INFO)
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", dropout=0.1)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), compile=compiled)
    module.prepare()
    CpuSpeed(Speed(tokens_per_pass=128)).setup(quiet_trainer(), module, "validate")
    assert encoder.groups.tokens_per_pass == (math.inf if compiled else 128)
    kinds = {type(part) for part in encoder.modules() if isinstance(part, nn.Dropout)}
    assert kinds == {nn.Dropout if compiled else FastDropout}
    groups, dropout = ("one padded batch", "torch") if compiled else ("a pass costs 128 tokens", "fast")
    assert f"{groups}; {dropout} dropout" in caplog.text
