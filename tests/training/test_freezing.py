"""Frozen layers of all architectures."""

import pytest

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.freezing import freeze_first_layers
from simcse_pl.utils.errors import UserError
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


@pytest.mark.parametrize("layers", [-1, 3])
def test_freezing_all_layers_is_an_error(layers, make_model):
    with pytest.raises(UserError, match=f"^module.freeze_layers={layers}: the model has 3 layers; choose 0 to 2"):
        freeze_first_layers(encoder_of(make_model("bert")), layers)
