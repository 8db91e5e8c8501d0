"""The example of a server."""

import runpy

import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import ROOT


def test_the_server_answers_with_the_encoders_vectors(make_model, tmp_path, monkeypatch):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", prompts={"query": "a man "})
    encoder.save_pretrained(tmp_path)
    monkeypatch.setenv("ENCODER", str(tmp_path))
    client = TestClient(runpy.run_path(str(ROOT / "examples" / "serve.py"))["app"])
    for name in (None, "query"):
        request = {"inputs": ["a man plays", "a dog"], "prompt_name": name}
        answer = client.post("/embed", json=request)
        expected = torch.nn.functional.normalize(encoder.encode(request["inputs"], prompt_name=name))
        torch.testing.assert_close(torch.tensor(answer.json()), expected)
    assert client.post("/embed", json={"inputs": 1}).status_code == 422
    refused = client.post("/embed", json={"inputs": ["a dog"], "prompt_name": "passage"})
    assert refused.status_code == 422 and "passage" in refused.json()["detail"]
