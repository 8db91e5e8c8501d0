"""Linear layers by oneDNN, compared with torch's in float64."""

import copy

import pytest
import torch
from torch import nn

from simcse_pl.cpu import layers
from simcse_pl.cpu.layers import OneDNNLinear, onednn_is_faster, use_onednn_linear
from simcse_pl.models.encoder import SentenceEncoder


@pytest.fixture
def chosen(monkeypatch):
    monkeypatch.setattr(layers, "onednn_is_faster", lambda: True)


@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 3), (3,), (1, 0, 3)])
@pytest.mark.parametrize("bias", [True, False])
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


def test_overlapping_inputs_and_gradients_of_gradients(chosen):
    layer, x = nn.Linear(8, 4), torch.randn(20)
    plain = copy.deepcopy(layer)
    use_onednn_linear(layer)
    found = []
    for own in (layer, plain):
        given = x.clone().requires_grad_()
        [gradient] = torch.autograd.grad(own(given.unfold(0, 8, 2)).pow(3).sum(), given, create_graph=True)
        gradient.square().sum().backward()
        found.append((gradient, given.grad))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_and_autocast_are_computed_by_torch(dtype, chosen, monkeypatch):
    monkeypatch.setattr(layers, "_multiply", None)  # a call would raise an error
    layer = nn.Linear(3, 4)
    plain = copy.deepcopy(layer)
    use_onednn_linear(layer)
    x = torch.randn(2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x), plain(x))
    assert torch.equal(layer.to(dtype)(x.to(dtype)), plain.to(dtype)(x.to(dtype)))


def test_an_encoder_uses_them_and_keeps_its_vectors(make_model, chosen, monkeypatch):
    folder, sentences = make_model("bert"), ["A dog sleeps.", "Two women are riding horses."]
    encoder = SentenceEncoder.from_pretrained(folder, pooling="cls")
    assert any(type(layer) is OneDNNLinear for layer in encoder.modules())
    monkeypatch.setattr(layers, "onednn_is_faster", lambda: False)
    plain = SentenceEncoder.from_pretrained(folder, pooling="cls")
    assert not any(type(layer) is OneDNNLinear for layer in plain.modules())
    torch.testing.assert_close(encoder.encode(sentences), plain.encode(sentences), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("capability", "vendor", "family", "faster"),
    [
        ("AVX512", "AuthenticAMD", 26, True),
        ("AVX512", "AuthenticAMD", 25, False),
        ("AVX512", "GenuineIntel", 26, False),
        ("AVX2", "AuthenticAMD", 26, False),
    ],
)
def test_they_are_for_amd_from_zen_5_on(capability, vendor, family, faster, monkeypatch, tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text(f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 2\n", encoding="utf-8")
    monkeypatch.setattr(layers, "_CPU_INFO", info)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    for library in (torch.backends.mkl, torch.backends.mkldnn):
        monkeypatch.setattr(library, "is_available", lambda: True)
    assert onednn_is_faster.__wrapped__() is faster
