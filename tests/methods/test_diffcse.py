"""DiffCSE: the edits, and its three networks."""

import pytest
import torch
from transformers import AutoModelForMaskedLM

from simcse_pl.methods.diffcse import ReplacedTokenDetection
from simcse_pl.utils.errors import UserError
from tests.losses.cases import attached, batch_of, load


@pytest.fixture
def folder(make_masked_language_model):
    return make_masked_language_model("bert")


def test_the_generator_edits_a_masked_copy(folder):
    encoder = load(folder)
    loss = attached(ReplacedTokenDetection(generator=folder), encoder)
    assert loss.generator.network.training, "with dropout, as in the released code"
    loss.generator.network.eval()
    ids, mask = (batch_of(encoder).inputs[name].flatten(0, 1) for name in ("input_ids", "attention_mask"))
    torch.manual_seed(5)
    edited = loss.edit(ids, mask, chunk_size=3)
    torch.manual_seed(5)
    masked, _ = loss.mask(ids)
    expected = AutoModelForMaskedLM.from_pretrained(folder).eval()(masked, attention_mask=mask).logits.argmax(dim=-1)
    assert edited[mask != 0].equal(expected[mask != 0]) and not edited.equal(ids)


def test_the_discriminator_is_a_trained_copy_and_the_generator_is_frozen(folder, make_masked_language_model):
    encoder = load(folder)
    encoder.backbone.embeddings.requires_grad_(False)
    loss = attached(ReplacedTokenDetection(generator=folder), encoder)
    for weight, copied in zip(encoder.backbone.parameters(), loss.discriminator.parameters(), strict=True):
        assert torch.equal(weight, copied) and weight is not copied and copied.requires_grad
    assert {name.split(".")[0] for name in loss.state_dict()} == {"discriminator", "classifier"}
    assert not any(weight.requires_grad for weight in loss.generator.network.parameters())
    with pytest.raises(UserError, match="its vocabulary must be that of the trained encoder$"):
        ReplacedTokenDetection(generator=make_masked_language_model("roberta")).attach(encoder)
