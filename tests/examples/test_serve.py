"""The example of a server."""

import runpy

import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.tools.simcse import SimCSE
from tests.conftest import ROOT


def test_the_server_answers_with_the_encoders_vectors_and_searches_its_index(make_model, tmp_path, monkeypatch):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", prompts={"query": "a man "})
    encoder.save_pretrained(tmp_path)
    monkeypatch.setenv("ENCODER", str(tmp_path))
    simcse = SimCSE(tmp_path)
    simcse.build_index(["a dog", "a man plays"])
    simcse.index.ids = {"a dog": "kb-7"}
    simcse.save_index(tmp_path / "index")
    monkeypatch.setenv("INDEX", str(tmp_path / "index"))
    client = TestClient(runpy.run_path(str(ROOT / "examples" / "serve.py"))["app"])
    for name in (None, "query"):
        request = {"inputs": ["a man plays", "a dog"], "prompt_name": name}
        answer = client.post("/embed", json=request)
        expected = torch.nn.functional.normalize(encoder.encode(request["inputs"], prompt_name=name))
        torch.testing.assert_close(torch.tensor(answer.json()), expected)
    for wrong in ({"inputs": 1}, {"inputs": ["a dog"], "prompt": "query"}):
        assert client.post("/embed", json=wrong).status_code == 422
    (hits,) = client.post("/search", json={"inputs": ["a dog"], "top_k": 2}).json()
    cosine = simcse.search("a dog", threshold=None)[0].similarity
    assert hits[0]["similarity"] == pytest.approx(cosine, abs=1e-5)
    assert {hit["sentence"]: hit["id"] for hit in hits} == {"a dog": "kb-7", "a man plays": None}
    refused = client.post("/embed", json={"inputs": ["a dog"], "prompt_name": "passage"})
    assert refused.status_code == 422 and "passage" in refused.json()["detail"]
