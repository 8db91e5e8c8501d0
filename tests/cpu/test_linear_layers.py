"""Linear layers by oneDNN, compared with torch's in float64."""

import copy

import pytest
import torch
from torch import nn

from simcse_pl.cpu import layers
from simcse_pl.cpu.layers import OneDNNLinear, use_onednn_linear
from simcse_pl.models.encoder import SentenceEncoder


@pytest.fixture
def chosen(monkeypatch):
    monkeypatch.setattr(layers, "onednn_is_faster", lambda: True)


@pytest.mark.parametrize(("shape", "bias"), [((2, 4, 3), True), ((5, 3), False), ((3,), True), ((1, 0, 3), True)])
def test_values_and_gradients_are_those_of_float64(shape, bias, chosen):
    layer = nn.Linear(3, 4, bias)
    exact = copy.deepcopy(layer).double()
    use_onednn_linear(layer)
    assert type(layer) is OneDNNLinear and layer.state_dict().keys() == exact.state_dict().keys()
    x = torch.randn(shape, requires_grad=True)
    x64 = x.detach().double().requires_grad_()
    ours, theirs = layer(x), exact(x64)
    assert ours.shape == theirs.shape
    ours.cos().sum().backward()
    theirs.cos().sum().backward()
    pairs = [(ours, theirs), (x.grad, x64.grad)]
    pairs += [(own.grad, other.grad) for own, other in zip(layer.parameters(), exact.parameters(), strict=True)]
    for own, other in pairs:
        torch.testing.assert_close(own.double(), other, atol=1e-6, rtol=1e-5)


def test_an_encoder_uses_them_and_keeps_its_vectors(make_model, chosen, monkeypatch):
    folder, sentences = make_model("bert"), ["A dog sleeps.", "Two women are riding horses."]
    encoder = SentenceEncoder.from_pretrained(folder, pooling="cls")
    assert any(type(layer) is OneDNNLinear for layer in encoder.modules())
    monkeypatch.setattr(layers, "onednn_is_faster", lambda: False)
    plain = SentenceEncoder.from_pretrained(folder, pooling="cls")
    assert not any(type(layer) is OneDNNLinear for layer in plain.modules())
    torch.testing.assert_close(encoder.encode(sentences), plain.encode(sentences), atol=1e-6, rtol=1e-5)
