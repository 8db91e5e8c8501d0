"""What a queue begins with; tests/test_module.py follows one."""

import peft
import pytest
import torch

from simcse_pl.methods.momentum_queue import MomentumQueue
from simcse_pl.models.adapters import add_adapter
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.losses.cases import attached


def test_the_moving_average_may_start_from_random_weights(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "cls")
    encoder.backbone.encoder.layer[0].requires_grad_(False)
    copied, drawn = (attached(MomentumQueue(size=4, pretrained=pretrained), encoder) for pretrained in (True, False))
    for name, weight in encoder.backbone.named_parameters():
        assert weight.equal(copied.encoder.backbone.get_parameter(name))
        if weight.ndim > 1:
            assert weight.equal(drawn.encoder.backbone.get_parameter(name)) == (not weight.requires_grad)
    add_adapter(encoder.backbone, peft.LoraConfig(r=2, target_modules=["query"]))
    with pytest.raises(UserError, match="pretrained=false draws a model, not an adapter"):
        attached(MomentumQueue(size=4, pretrained=False), encoder)


def test_the_queue_is_as_wide_as_the_head(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "cls", head="linear_8")
    queue = attached(MomentumQueue(size=4), encoder)
    inputs = encoder.templates.batch(encoder.templates.tokens_of(SENTENCES[:3], 20))
    queue.update(encoder, {name: x.unsqueeze(1) for name, x in inputs.items()})
    torch.testing.assert_close(queue.negatives(), encoder(inputs))
