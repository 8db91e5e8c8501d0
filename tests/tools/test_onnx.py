import numpy as np
import onnxruntime
import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.postprocessing.linear import Whitening
from simcse_pl.tools import onnx
from simcse_pl.tools.onnx import GRAPH_FILE, INT8_FILE, write_onnx
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

TEXTS = [*SENTENCES, "word " * 300, "", "🙂 שלום"]


def run(path, tokenizer, sentences):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = tokenizer(sentences, padding=True, truncation=True, return_tensors="np")
    (vectors,) = session.run(["sentence_embedding"], {i.name: inputs[i.name] for i in session.get_inputs()})
    return torch.from_numpy(vectors)


@pytest.mark.parametrize(
    ("architecture", "pooling", "head", "normalize"),
    [
        ("bert", "pooler", "linear_8_gelu+layer_norm", True),
        pytest.param("roberta", "first_last", "mlp_train_only", False, marks=pytest.mark.slow),
        pytest.param("modernbert", "max", "none", True, marks=pytest.mark.slow),
    ],
)
def test_graphs_give_the_encoders_vectors_for_any_batch_size_and_length(
    architecture, pooling, head, normalize, make_model, tmp_path
):
    options = {"head": head, "normalize": normalize, "max_length": 20}
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling, num_layers=2, **options).train()
    messages = write_onnx(encoder, tmp_path, SENTENCES, int8=True)
    assert encoder.training and {path.name for path in tmp_path.iterdir()} == {GRAPH_FILE, INT8_FILE}
    for sentences in (TEXTS, TEXTS[:1], [""], TEXTS * 9):
        expected = encoder.encode(sentences)
        vectors = run(tmp_path / GRAPH_FILE, encoder.tokenizer, sentences)
        torch.testing.assert_close(vectors, expected, atol=1e-4, rtol=0)
        coarse = run(tmp_path / INT8_FILE, encoder.tokenizer, sentences)
        assert torch.cosine_similarity(coarse, expected).min() > 0.98 and not torch.equal(coarse, expected)
    coarse = run(tmp_path / INT8_FILE, encoder.tokenizer, SENTENCES)
    cosine = torch.cosine_similarity(coarse, encoder.encode(SENTENCES)).min()
    assert messages[INT8_FILE] == f"vectors have cosine similarity {cosine:.3f} or more with the encoder's"
    assert (tmp_path / INT8_FILE).stat().st_size < (tmp_path / GRAPH_FILE).stat().st_size


def test_post_processing_is_part_of_the_graph(make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean", normalize=True, num_layers=1)
    encoder.postprocess = Whitening(dim=8).fit(encoder.encode(TEXTS * 5))
    write_onnx(encoder, tmp_path, TEXTS)
    vectors = run(tmp_path / GRAPH_FILE, encoder.tokenizer, TEXTS)
    inputs = encoder.templates.batch(encoder.templates.tokens_of(TEXTS, encoder.max_length))
    graph = onnxruntime.InferenceSession(tmp_path / GRAPH_FILE, providers=["CPUExecutionProvider"])
    (states,) = graph.run(["last_hidden_state"], {name: x.numpy() for name, x in inputs.items()})
    expected = encoder.backbone(**inputs).last_hidden_state.detach()
    kept = inputs["attention_mask"] == 1
    torch.testing.assert_close(torch.from_numpy(states)[kept], expected[kept], atol=1e-4, rtol=0)
    assert vectors.shape == (len(TEXTS), 8)
    torch.testing.assert_close(vectors, encoder.encode(TEXTS), atol=1e-4, rtol=0)
    np.testing.assert_allclose(vectors.norm(dim=1), 1, atol=1e-5)


@pytest.mark.parametrize("wrong", [GRAPH_FILE, INT8_FILE])
def test_no_file_is_written_if_vectors_differ(wrong, make_model, tmp_path, monkeypatch):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean", num_layers=1)
    vectors = encoder.encode(SENTENCES)
    for name in ("_write_graph", "_write_int8"):
        monkeypatch.setattr(onnx, name, lambda *given: given[-1].touch())
    monkeypatch.setattr(onnx, "_run", lambda graph, *_: -vectors if graph.name == wrong else vectors)
    with pytest.raises(UserError, match=f"^{wrong}: .*(differ from the encoder's by|cosine similarity .* too low)"):
        write_onnx(encoder, tmp_path, SENTENCES, int8=True)
    assert not list(tmp_path.iterdir())
