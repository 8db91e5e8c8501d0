"""InfoCSE: its frozen and trained layers."""

import pytest

from simcse_pl.methods.infocse import SentenceMaskedLanguageModeling
from tests.losses.cases import attached, load


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
