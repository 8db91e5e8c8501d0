"""DenoSent: the noise, and its decoder; tests/fidelity has its values."""

import pytest
import torch

from simcse_pl.methods.denosent import NoisyReconstruction
from simcse_pl.utils.errors import UserError
from tests.losses.cases import attached, batch_of, load


@pytest.fixture
def encoder(make_masked_language_model):
    return load(make_masked_language_model("bert"))


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


def test_the_decoder_is_new_and_sees_all_tokens_and_the_embedding(encoder):
    loss = attached(NoisyReconstruction(noise=0, dropout=0, layers=2), encoder)
    assert {name.split(".")[0] for name in loss.state_dict()} == {"decoder", "head"}
    linear = [part for part in loss.decoder.modules() if type(part) is torch.nn.Linear]
    assert all(part.weight.detach().std() == pytest.approx(0.02, rel=0.1) and not part.bias.any() for part in linear)
    sentence = torch.randn(1, 1, 32, requires_grad=True)
    ids = torch.tensor([[2, 7, 8, 9, 3, 0]])
    states = loss.states(encoder.backbone, {"input_ids": ids, "attention_mask": ids != 0}, sentence)
    (gradient,) = torch.autograd.grad(states[0, 0].square().sum(), sentence)
    assert gradient.norm() > 0
    for place, changes in ((4, True), (5, False)):  # the last token, and padding
        other = ids.clone()
        other[0, place] = 11
        inputs = {"input_ids": other, "attention_mask": ids != 0}
        assert loss.states(encoder.backbone, inputs, sentence)[0, 0].allclose(states[0, 0], atol=1e-6) != changes


@pytest.mark.parametrize(
    ("architecture", "options", "message"),
    [
        ("gpt2", {}, "^GPT2Model has no embedding layer"),
        ("bert", {"heads": 5}, "^heads=5: "),
        ("bert", {"head": "pretrained"}, "option head=new initializes a new one$"),
    ],
)
def test_an_encoder_or_options_that_do_not_fit_are_errors(architecture, options, message, make_model):
    encoder = load(make_model(architecture), pooling="mean")
    with pytest.raises(UserError, match=message):
        NoisyReconstruction(**{"head": "new"} | options).attach(encoder)
