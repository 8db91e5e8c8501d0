import json

import pytest
from fastapi.testclient import TestClient

from simcse_pl.inference.server.application import build_app
from simcse_pl.inference.simcse import SimCSE
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES


@pytest.fixture(scope="module")
def encoders(make_model):
    kinds = (("bert", "mean"), ("roberta", "cls"))
    encoders = [SimCSE(make_model(kind), pooling=pooling, device="cpu") for kind, pooling in kinds]
    for encoder in encoders:
        encoder.build_index(SENTENCES)
    return encoders


@pytest.fixture(scope="module")
def client(encoders):
    descriptions = [{"encoder": name, "layers": 3} for name in "AB"]
    app = build_app(encoders, descriptions, max_queries=3, max_characters=50)
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize("options", [{}, {"top_k": 4, "threshold": 0.5}])
def test_every_encoder_finds_what_search_finds(options, client, encoders):
    queries = [" Two dogs run.\n", "Ein Hund läuft – 狗在跑 🐕‍🦺", "\U0010ffff"]
    response = client.post("/search", json={"queries": queries} | options)
    assert response.status_code == 200, response.text
    assert [one["encoder"] for one in response.json()["encoders"]] == ["A", "B"]
    expected_options = {"top_k": 5, "threshold": None} | options
    for one, found in zip(encoders, response.json()["encoders"], strict=True):
        assert found["results"] == [
            [
                {"sentence": near.sentence, "similarity": pytest.approx(near.similarity, abs=1e-4)}
                for near in one.search(query.strip(), **expected_options)
            ]
            for query in queries
        ]


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ({}, ["queries"]),
        ({"queries": []}, ["queries"]),
        ({"queries": ["a"] * 4}, ["queries"]),
        ({"queries": ["a", " \t"]}, ["queries", 1]),
        ({"queries": ["a" * 51]}, ["queries", 0]),
        ({"queries": ["a"], "top_k": 0}, ["top_k"]),
        ({"queries": ["a"], "top_k": 101}, ["top_k"]),
        ({"queries": ["a"], "threshold": 1.01}, ["threshold"]),
        ({"queries": ["a"], "treshold": 0.5}, ["treshold"]),
    ],
)
def test_invalid_requests_get_status_422_and_the_location(body, location, client):
    response = client.post("/search", json=body)
    assert response.status_code == 422 and response.json()["detail"][0]["loc"] == ["body", *location]


def test_requests_at_the_limits_are_valid_and_larger_bodies_are_not(client):
    body = json.dumps({"queries": ["🐕" * 50, "b" * 50, "c" * 50], "top_k": 100, "threshold": -1})
    headers = {"Content-Type": "application/json"}
    found = client.post("/search", content=body, headers=headers).json()["encoders"][0]["results"]
    assert [len(near) for near in found] == [len(SENTENCES)] * 3
    assert client.post("/search", content=body + " " * 20000, headers=headers).status_code == 413


def test_an_error_in_a_search_does_not_reach_the_client(client, encoders, monkeypatch):
    def fail(*_, **__):
        raise UserError("the vector of 'another query' is not finite")

    monkeypatch.setattr(encoders[1], "search", fail)
    response = client.post("/search", json={"queries": ["a"]})
    assert response.status_code == 500 and "another query" not in response.text
    monkeypatch.undo()
    assert client.post("/search", json={"queries": ["a"]}).status_code == 200


def test_encoders_and_limits_are_listed(client):
    response = client.get("/encoders").json()
    assert response["encoders"] == [{"encoder": name, "layers": 3, "sentences": len(SENTENCES)} for name in "AB"]
    assert response["limits"] == {"queries": 3, "characters": 50, "top_k": 100}


def test_only_the_page_is_served(client):
    assert "<title>Nearest sentences</title>" in client.get("/").text
    assert client.get("/script.js").headers["Content-Type"].startswith("text/javascript")
    for path in ("/nowhere", "/docs", "/%2e%2e/application.py"):
        assert client.get(path).status_code == 404


def test_another_host_name_gets_no_answer():
    app = build_app([], [], allowed_hosts=["127.0.0.1"])
    assert TestClient(app, base_url="http://127.0.0.1:8000").get("/encoders").status_code == 200
    assert TestClient(app, base_url="http://evil.example").get("/encoders").status_code == 400
