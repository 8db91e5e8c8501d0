"""DenoSent: the noise, and its decoder; tests/fidelity has its values."""

import pytest
import torch

from simcse_pl.methods.denosent import NoisyReconstruction
from tests.losses.cases import attached, batch_of, load


@pytest.mark.parametrize("architecture", ["bert", "electra", "modernbert"])
def test_the_noise_is_dropout_of_the_input_of_the_first_layer(architecture, make_masked_language_model):
    encoder = load(make_masked_language_model(architecture))
    loss = attached(NoisyReconstruction(noise=0.8, layers=1, heads=2), encoder)
    inputs = {name: x[:, 0] for name, x in batch_of(encoder).inputs.items()}
    clean = encoder.backbone(**inputs, output_hidden_states=True).hidden_states[0]
    given = []
    loss.decoder.register_forward_pre_hook(lambda _, tokens: given.append(tokens[0]))
    loss.states(encoder.backbone, inputs, torch.randn(4, 1, 32))
    (noisy,) = given
    kept = noisy != 0
    torch.testing.assert_close(noisy, torch.where(kept, clean / 0.2, 0))
    assert kept.float().mean() == pytest.approx(0.2, abs=0.02) and not noisy.requires_grad


def test_the_decoder_is_new(make_masked_language_model):
    loss = attached(NoisyReconstruction(layers=2), load(make_masked_language_model("bert")))
    assert {name.split(".")[0] for name in loss.state_dict()} == {"decoder", "head"}
    linear = [part for part in loss.decoder.modules() if type(part) is torch.nn.Linear]
    assert all(part.weight.detach().std() == pytest.approx(0.02, rel=0.1) and not part.bias.any() for part in linear)
