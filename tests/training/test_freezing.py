"""Frozen layers of all architectures."""

import pytest

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.freezing import freeze_first_layers
from tests.conftest import ARCHITECTURES


def encoder_of(folder):
    return SentenceEncoder.from_pretrained(folder, pooling="mean")


@pytest.mark.parametrize(
    ("architecture", "layers"), [("bert", 0), ("bert", 2), *((architecture, 1) for architecture in ARCHITECTURES)]
)
def test_the_first_layers_and_the_embeddings_are_frozen(architecture, layers, make_model):
    encoder = encoder_of(make_model(architecture)).train()
    backbone = encoder.backbone
    stacks = [getattr(part, "layers", None) or getattr(part, "layer", None) for part in backbone.modules()]
    (stack,) = (stack for stack in stacks if stack is not None and len(stack) == 3)
    freeze_first_layers(encoder, layers)
    for number, layer in enumerate(stack):
        assert all(p.requires_grad == (number >= layers) for p in layer.parameters())
    assert not backbone.get_input_embeddings().weight.requires_grad and backbone.training
