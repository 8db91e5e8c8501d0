"""TSDAE: where its decoder is, and what cannot be one; tests/fidelity has its values."""

import pytest
import torch
from safetensors.torch import load_file

from simcse_pl.methods.tsdae import DenoisingAutoEncoder
from simcse_pl.models.backbone import recompute_layers
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.losses.cases import attached, batch_of, load


def test_the_decoder_changes_neither_the_vectors_nor_the_saved_encoder(make_masked_language_model, tmp_path):
    folder = make_masked_language_model("bert")
    plain, encoder = load(folder, head="none"), load(folder, head="none")
    loss = attached(DenoisingAutoEncoder(), encoder)
    plain.save_pretrained(tmp_path / "plain")
    encoder.save_pretrained(tmp_path / "trained")
    weights, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("trained", "plain"))
    torch.testing.assert_close(weights, expected, atol=0, rtol=0)
    assert encoder.encode(SENTENCES).equal(plain.encode(SENTENCES))
    assert {name.split(".")[0] for name in loss.state_dict()} == {"head", "cross_attention"}
    assert len(loss.cross_attention) == 3


def results(architecture, make_masked_language_model, prepare=lambda backbone: None, **options):
    """Return the loss and its gradient as one vector."""
    encoder = load(make_masked_language_model(architecture), head="none", **options).double()
    torch.manual_seed(3)
    loss = attached(DenoisingAutoEncoder(), encoder)
    prepare(encoder.backbone)
    torch.manual_seed(3)
    value = loss(batch_of(encoder))
    trained = [*encoder.parameters(), *loss.parameters()]
    gradients = torch.autograd.grad(value, list(dict.fromkeys(trained)))
    return value.detach(), torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra"])
@pytest.mark.parametrize(
    "options", [{"prepare": recompute_layers, "dropout": 0.2}, {"attn_implementation": "eager"}], ids=" ".join
)
def test_recomputed_layers_and_other_attention_have_the_same_gradient(
    architecture, options, make_masked_language_model
):
    plain = {"dropout": options["dropout"]} if "dropout" in options else {}
    expected = results(architecture, make_masked_language_model, **plain)
    torch.testing.assert_close(results(architecture, make_masked_language_model, **options), expected)


def test_flash_attention_which_reads_no_causal_mask_is_an_error(make_masked_language_model):
    encoder = load(make_masked_language_model("bert"))
    encoder.backbone.config._attn_implementation_internal = "flash_attention_2"  # transformers checks for a GPU
    with pytest.raises(UserError, match="^attn_implementation: FlashAttention"):
        DenoisingAutoEncoder().attach(encoder)
