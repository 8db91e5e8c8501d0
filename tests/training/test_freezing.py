"""Frozen layers of all architectures, and frozen parameters that no loss depends on."""

import pytest

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.backbones import freeze_first_layers
from simcse_pl.training.module import SimCSEModule
from tests.conftest import SENTENCES, adamw
from tests.tiny_models import ARCHITECTURES


@pytest.mark.parametrize(
    ("architecture", "layers"), [("bert", 0), ("bert", 2), *((architecture, 1) for architecture in ARCHITECTURES)]
)
def test_the_first_layers_and_the_embeddings_are_frozen(architecture, layers, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean").train()
    backbone = encoder.backbone
    stacks = [getattr(part, "layers", None) or getattr(part, "layer", None) for part in backbone.modules()]
    (stack,) = (stack for stack in stacks if stack is not None and len(stack) == 3)
    freeze_first_layers(encoder, layers)
    for number, layer in enumerate(stack):
        assert all(p.requires_grad == (number >= layers) for p in layer.parameters())
    assert not backbone.get_input_embeddings().weight.requires_grad and backbone.training


@pytest.mark.parametrize(
    ("architecture", "pooling"),
    [*(("bert", p) for p in ("layers_0", "layers_1", "layers_3", "first_last", "cls")), ("modernbert", "layers_1_2")],
)
def test_every_trainable_parameter_gets_a_gradient(make_model, architecture, pooling):
    """DDP waits forever for missing gradients. Two encoders are both trained."""
    first, second = (SentenceEncoder.from_pretrained(make_model(architecture), pooling=pooling) for _ in range(2))
    module = SimCSEModule(first, ContrastiveLoss(), adamw(), positive_encoder=second)
    module.prepare()
    views = ViewCollator(first.tokenizer, 16)([(sentence,) for sentence in SENTENCES])
    module.loss(module.batch_of(views)).backward()
    assert all((p.grad is not None) == p.requires_grad for p in module.parameters())
    assert any(p.requires_grad for p in second.parameters())
