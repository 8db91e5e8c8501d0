"""InfoCSE: its frozen and trained layers."""

import pytest
import torch

from simcse_pl.methods.infocse import SentenceMaskedLanguageModeling
from simcse_pl.utils.errors import UserError
from tests.losses.cases import attached, batch_of, load
from tests.tiny_models import ARCHITECTURES


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_it_depends_on_the_pooled_vector_for_every_architecture(architecture, make_masked_language_model):
    encoder = load(make_masked_language_model(architecture))
    loss = attached(SentenceMaskedLanguageModeling(frozen_layers=2, probability=1.0), encoder)
    vectors = torch.randn(4, 2, 32).requires_grad_()
    loss(encoder, batch_of(encoder, pooled=vectors)).backward()
    assert (vectors.grad.flatten(0, 1).norm(dim=1) > 0).all()
    assert all(weight.grad is None for weight in encoder.parameters()), "it learns through its vectors only"


@pytest.mark.parametrize("frozen_dropout", [False, True])
def test_the_frozen_layers_are_neither_trained_nor_saved(frozen_dropout, make_masked_language_model):
    encoder = load(make_masked_language_model("bert"))
    loss = attached(SentenceMaskedLanguageModeling(frozen_layers=2, layers=1, frozen_dropout=frozen_dropout), encoder)
    frozen = loss.frozen.network
    assert (len(frozen.encoder.layer), len(loss.head_layers.encoder.layer)) == (2, 1)
    assert frozen.training == frozen_dropout and loss.head_layers.training
    assert {name.split(".")[0] for name in loss.state_dict()} == {"head", "head_layers"}
    assert not any(weight.requires_grad for weight in frozen.parameters())
    embeddings = encoder.backbone.get_input_embeddings().weight
    assert not any(weight is embeddings for weight in loss.parameters()), "the decoder is a copy"
    with pytest.raises(UserError, match="^frozen_layers=6: the model has 3 layers$"):
        SentenceMaskedLanguageModeling().attach(encoder)
