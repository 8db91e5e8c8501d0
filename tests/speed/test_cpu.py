"""Fast dropout: rate, scale, gradient, attention, seeding. Linear layers by oneDNN, compared with float64."""

import copy

import pytest
import torch
from torch import nn
from transformers import AttentionInterface, AutoModel, FalconConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from simcse_pl.models import encoder as encoders
from simcse_pl.models.backbone import use_sdpa
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.speed.dropout import FastDropout, fast_dropout, use_fast_dropout
from simcse_pl.speed.onednn import OneDNNLinear, use_onednn_linear
from tests.conftest import SENTENCES

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.01, 0.5])
def test_elements_are_zeroed_at_the_rate_and_the_others_scaled(dtype, p):
    n = 400_001
    dropped = fast_dropout(torch.ones(n, dtype=dtype), p)
    zeroed = (dropped == 0).double()
    spread = (p * (1 - p) / n) ** 0.5
    assert abs(zeroed.mean().item() - p) < 5 * spread + 2**-15
    assert dropped[dropped != 0].unique().tolist() == [torch.tensor(1 / (1 - p), dtype=dtype).item()]
    neighbours = torch.corrcoef(torch.stack([zeroed[1:], zeroed[:-1]]))[0, 1]
    assert abs(neighbours) < 5 / n**0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_is_masked_and_scaled_as_the_input_was(dtype):
    x = torch.randn(50, 7, dtype=dtype).requires_grad_()
    dropped = fast_dropout(x.T, 0.3)  # not contiguous
    upstream = torch.randn(7, 50, dtype=dtype)
    dropped.backward(upstream)
    mask = (dropped != 0).T
    torch.testing.assert_close(x.grad, upstream.T * mask / 0.7, atol=0, rtol=8e-3 if x.element_size() == 2 else 1e-6)


def test_a_rate_of_1_drops_all():
    assert not fast_dropout(torch.ones(10), 1.0).any()


def test_masks_are_seeded_by_torch():
    torch.manual_seed(3)
    first, second = (fast_dropout(torch.ones(1000), 0.5) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(fast_dropout(torch.ones(1000), 0.5), first) and not torch.equal(first, second)


@pytest.mark.parametrize("rate", [1e-9, 0.3])
@pytest.mark.parametrize("architecture", ["bert", "distilbert", "modernbert"])
def test_a_backbone_changes_its_vectors_in_training_alone_unless_the_rate_is_almost_0(architecture, rate, make_model):
    options = {"pooling": "mean", "dropout": rate, "attention_dropout": rate}
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), **options)
    before = encoder.encode(SENTENCES)
    use_fast_dropout(encoder.backbone)
    assert any(isinstance(layer, FastDropout) for layer in encoder.modules())
    torch.testing.assert_close(encoder.encode(SENTENCES), before, atol=1e-6, rtol=0)
    trained = encoder.train()(encoder.tokenizer(SENTENCES, padding=True, return_tensors="pt"))
    assert torch.allclose(trained, before, atol=1e-5, rtol=0) == (rate < 0.3)


def test_an_encoder_changes_its_own_attention_only(make_model, tmp_path):
    """Other models of the process, before and after it, keep transformers' functions."""
    folder, functions = make_model("bert"), (AttentionInterface(), AttentionMaskInterface())
    of_transformers = [dict(functions[0]._global_mapping), dict(functions[1]._global_mapping)]
    before = AutoModel.from_pretrained(folder)
    encoder = SentenceEncoder.from_pretrained(folder, "cls")
    after = AutoModel.from_pretrained(folder)
    use_fast_dropout(SentenceEncoder.from_pretrained(folder, "cls").backbone)
    assert [functions[0]["sdpa"], functions[1]["sdpa"]] == [sdpa_attention_forward, sdpa_mask]
    for mapping, names in zip(functions, of_transformers, strict=True):
        assert {name: mapping[name] for name in names} == names
    implementations = [model.config._attn_implementation for model in (before, after, encoder.backbone)]
    assert implementations == ["sdpa", "sdpa", "sdpa_without_synchronization"]
    encoder.save_pretrained(tmp_path)
    assert "sdpa_" not in (tmp_path / "config.json").read_text()
    assert AutoModel.from_pretrained(tmp_path).config._attn_implementation == "sdpa"


def test_the_mask_of_an_encoder_is_omitted_on_a_cpu_alone(make_model, monkeypatch):
    asked = []
    mapping = AttentionMaskInterface._global_mapping
    monkeypatch.setitem(mapping, "sdpa", lambda **options: asked.append(options))
    backbone = SentenceEncoder.from_pretrained(make_model("bert"), "cls").backbone
    asked.clear()
    backbone(input_ids=torch.ones(2, 3, dtype=torch.int64), attention_mask=torch.ones(2, 3))
    backbone.to("meta")(input_ids=torch.ones(2, 3, dtype=torch.int64, device="meta"))
    backbone(**dict.fromkeys(("input_ids", "attention_mask"), torch.ones(2, 3, dtype=torch.int64, device="meta")))
    assert [options["allow_is_bidirectional_skip"] for options in asked] == [True, True, False]


def test_an_encoder_can_be_sent_to_another_process(make_model, run_command, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "cls")
    torch.save(encoder, tmp_path / "encoder.pt")
    code = "import sys, torch; torch.save(torch.load(sys.argv[1], weights_only=False).encode(['A dog.']), sys.argv[2])"
    run_command("-c", code, tmp_path / "encoder.pt", tmp_path / "vectors.pt")
    assert torch.equal(torch.load(tmp_path / "vectors.pt"), encoder.encode(["A dog."]))


def test_a_model_with_attention_of_its_own_keeps_it_without_a_warning(caplog):
    model = AutoModel.from_config(FalconConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    caplog.clear()
    use_sdpa(model)
    assert model.config._attn_implementation == "sdpa" and caplog.text == ""


@pytest.fixture
def chosen(monkeypatch):
    monkeypatch.setattr(encoders, "onednn_is_faster", lambda: True)


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
    monkeypatch.setattr(encoders, "onednn_is_faster", lambda: False)
    plain = SentenceEncoder.from_pretrained(folder, pooling="cls")
    assert not any(type(layer) is OneDNNLinear for layer in plain.modules())
    torch.testing.assert_close(encoder.encode(sentences), plain.encode(sentences), atol=1e-6, rtol=1e-5)
