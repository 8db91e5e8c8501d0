"""EncoderSpec folders in sentence-transformers and transformers: the vectors are ours."""

import json

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.pooling import POOLINGS
from simcse_pl.postprocessing.flow import Flow
from simcse_pl.postprocessing.remove_components import RemoveComponents
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.errors import UserError
from tests.conftest import ARCHITECTURES, SENTENCES

TEXTS = [*SENTENCES, "word " * 300, "", "🙂 שלום"]
SOME = torch.randn(200, 32, generator=torch.Generator().manual_seed(0)) @ torch.diag(torch.linspace(0.5, 2, 32)) + 1


def of_the_library(folder):
    import sentence_transformers  # takes seconds

    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    assert model.max_seq_length == 20
    return torch.as_tensor(model.encode(TEXTS, show_progress_bar=False))


def assert_loads_the_same(encoder, folder):
    encoder.save_pretrained(folder)
    expected = encoder.encode(TEXTS)
    torch.testing.assert_close(of_the_library(folder), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(SentenceEncoder.from_pretrained(folder).encode(TEXTS), expected, atol=0, rtol=0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("head", "normalize"), [("mlp", True), ("mlp", False), ("mlp_train_only", True)])
def test_the_head_is_there_as_trained_and_the_length_as_chosen(architecture, head, normalize, make_model, tmp_path):
    options = {"head": head, "normalize": normalize, "max_length": 20}
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), "cls", **options)
    assert_loads_the_same(encoder, tmp_path)
    assert (tmp_path / "2_Dense").exists() == (head == "mlp")


@pytest.mark.parametrize("architecture", ["bert", "modernbert", "roberta"])
@pytest.mark.parametrize("pooling", [*POOLINGS, "layers_0_2", "layers_3"])
def test_poolings(architecture, pooling, make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling, max_length=20)
    assert_loads_the_same(encoder, tmp_path)


@pytest.mark.parametrize("postprocess", [Whitening(), Whitening(dim=8), RemoveComponents(3)])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_linear_post_processing_is_one_more_module(postprocess, normalize, make_model, tmp_path):
    plain = SentenceEncoder.from_pretrained(make_model("bert"), "mean", head="mlp", max_length=20)
    postprocess.fit(SOME)
    parts = (plain.backbone, plain.tokenizer, "mean", "mlp", 20, normalize, postprocess)
    encoder = SentenceEncoder(*parts)
    encoder.projection.load_state_dict(plain.projection.state_dict())
    expected = postprocess.transform(plain.encode(TEXTS))
    expected = F.normalize(expected, dim=-1) if normalize else expected
    assert torch.equal(encoder.encode(TEXTS), expected) and encoder.dim == expected.shape[1]
    assert encoder.encode([]).shape == (0, encoder.dim)
    assert_loads_the_same(encoder, tmp_path)
    assert [entry["type"].rpartition(".")[2] for entry in json.loads((tmp_path / "modules.json").read_text())] == [
        *("Transformer", "Pooling", "Dense", "Dense"),
        *["Normalize"] * normalize,
    ]
    plain.save_pretrained(tmp_path)  # over it
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path).encode(TEXTS), plain.encode(TEXTS))


def test_a_flow_is_refused_and_nothing_is_written(make_model, tmp_path):
    flow = Flow(epochs=1).fit(SOME)
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean")
    encoder = SentenceEncoder(encoder.backbone, encoder.tokenizer, "mean", postprocess=flow)
    with pytest.raises(UserError, match="flow is not linear"):
        encoder.save_pretrained(tmp_path / "saved")
    assert not list((tmp_path / "saved").iterdir())


def test_transformers_alone_gives_the_same(make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model("roberta"), "cls", head="mlp", max_length=20, normalize=True)
    encoder.save_pretrained(tmp_path)
    model, tokenizer = AutoModel.from_pretrained(tmp_path).eval(), AutoTokenizer.from_pretrained(tmp_path)
    dense = load_file(tmp_path / "2_Dense" / "model.safetensors")
    with torch.no_grad():
        states = model(**tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")).last_hidden_state
        vectors = torch.tanh(states[:, 0] @ dense["linear.weight"].T + dense["linear.bias"])
    torch.testing.assert_close(encoder.encode(TEXTS), F.normalize(vectors, dim=-1), atol=1e-6, rtol=0)
