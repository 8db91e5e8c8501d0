import json

import pytest
from fastapi.testclient import TestClient

from simcse_pl.inference.server.application import Limits, Served, application
from simcse_pl.inference.simcse import SimCSE
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

LIMITS = Limits(queries=3, characters=50, results=4)


@pytest.fixture(scope="module")
def served(make_model):
    kinds = (("bert", "mean"), ("roberta", "cls"))
    encoders = [SimCSE(make_model(kind), pooling=pooling, device="cpu") for kind, pooling in kinds]
    for encoder in encoders:
        encoder.build_index(SENTENCES)
    return [Served(name, encoder, {"layers": 3}) for name, encoder in zip("AB", encoders, strict=True)]


@pytest.fixture(scope="module")
def client(served):
    app = application(served, LIMITS, ["127.0.0.1"])
    return TestClient(app, "http://127.0.0.1:8000", raise_server_exceptions=False)


def refusal(answer, status):
    """The one line that tells what is wrong."""
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"] and "Traceback" not in answer.text
    assert "\n" not in answer.json()["error"]
    return answer.json()["error"]


@pytest.mark.parametrize("options", [{}, {"top_k": 1}, {"top_k": 4, "threshold": 0.5}, {"top_k": 3, "threshold": 1}])
@pytest.mark.parametrize("queries", [["Two dogs run."], [SENTENCES[3], "Ein Hund läuft – 狗在跑 🐕‍🦺", "\U0010ffff"]])
def test_every_encoder_finds_what_search_finds(options, queries, client, served):
    answer = client.post("/search", json={"queries": queries} | options)
    assert answer.status_code == 200, answer.text
    assert [one["encoder"] for one in answer.json()["encoders"]] == ["A", "B"]
    expected_options = {"top_k": 4, "threshold": None} | options  # 5, but for the limit
    for one, found in zip(served, answer.json()["encoders"], strict=True):
        expected = [one.simcse.search(query, **expected_options) for query in queries]
        assert found["results"] == [
            [{"sentence": near.sentence, "similarity": pytest.approx(near.similarity, abs=1e-4)} for near in own]
            for own in expected
        ]


def test_white_space_around_a_query_is_none_of_it(client):
    plain, spaced = (client.post("/search", json={"queries": [q]}).json() for q in ("Snow.", " " * 100 + "Snow.\n"))
    assert plain == spaced


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ({}, "queries"),
        ({"queries": []}, "queries"),
        ({"queries": "one string"}, "queries"),
        ({"queries": ["a"] * 4}, "queries"),
        ({"queries": ["a", " \t"]}, "queries.1"),
        ({"queries": ["a", "", "b"]}, "queries.1"),
        ({"queries": ["a" * 51]}, "queries.0"),
        ({"queries": [3]}, "queries.0"),
        ({"queries": [None]}, "queries.0"),
        ({"queries": ["a"], "top_k": 0}, "top_k"),
        ({"queries": ["a"], "top_k": 5}, "top_k"),
        ({"queries": ["a"], "top_k": "3"}, "top_k"),
        ({"queries": ["a"], "top_k": 2.5}, "top_k"),
        ({"queries": ["a"], "top_k": True}, "top_k"),
        ({"queries": ["a"], "threshold": 1.01}, "threshold"),
        ({"queries": ["a"], "threshold": "any"}, "threshold"),
        ({"queries": ["a"], "treshold": 0.5}, "treshold"),
    ],
)
def test_what_is_wrong_is_told_by_its_place(asked, place, client):
    assert refusal(client.post("/search", json=asked), 422).startswith(f"{place}: ")


def test_the_limits_themselves_are_allowed(client):
    longest = ["🐕" * 50, "b" * 50, "c" * 50]
    body = json.dumps({"queries": longest, "top_k": 4, "threshold": -1})
    assert len(body) < LIMITS.body
    answer = client.post("/search", content=body, headers={"Content-Type": "application/json"})
    assert [len(found) for found in answer.json()["encoders"][0]["results"]] == [4, 4, 4]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"queries=a", 422),
        (b'{"queries": ["a"]', 422),
        (b"[]", 422),
        (b"null", 422),
        (b'"a"', 422),
        (b'{"queries": ["\\ud800"]}', 422),
        (b'{"queries": ["a"], "threshold": NaN}', 422),
        (b'{"queries": ["a"], "top_k": ' + b"9" * 5000 + b"}", 400),
        (b'{"queries": ["\xff"]}', 400),
        (b"[" * 10000, 400),
        (b" " * (LIMITS.body + 1), 413),
    ],
)
def test_what_is_no_request_is_one_line(body, status, client):
    refusal(client.post("/search", content=body, headers={"Content-Type": "application/json"}), status)


def test_a_body_that_does_not_say_its_length_is_limited_too(client):
    parts = (b" " * 1000 for _ in range(LIMITS.body // 1000 + 2))
    refusal(client.post("/search", content=parts, headers={"Content-Type": "application/json"}), 413)


def test_a_form_of_another_site_is_no_request(client):
    """Without a question asked before, a page of another site can send just such types."""
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = client.post("/search", content='{"queries": ["a"]}', headers={"Content-Type": kind})
        assert "application/json" in refusal(answer, 422)
    allowed = client.options("/search", headers={"Origin": "http://x", "Access-Control-Request-Method": "POST"})
    assert not [name for name in allowed.headers if name.startswith("access-control")]


def test_other_paths_and_methods_are_refused(client):
    refusal(client.get("/search"), 405)
    refusal(client.post("/encoders"), 405)
    for path in ("/nowhere", "/docs", "/redoc", "/../application.py", "/%2e%2e/application.py"):
        refusal(client.get(path), 404)


@pytest.mark.parametrize(("range_", "status"), [("bytes=999999-", 416), ("bytes=5-2", 400), ("lines=1-2", 400)])
def test_a_range_that_the_page_does_not_have_is_no_failure(range_, status, client):
    assert "ange" in refusal(client.get("/script.js", headers={"Range": range_}), status)
    assert client.get("/script.js", headers={"Range": "bytes=0-3"}).content == client.get("/script.js").content[:4]


def test_another_name_that_points_here_is_refused(client):
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", ""):
        assert "host" in refusal(client.get("/encoders", headers={"Host": host}), 400)
    assert client.get("/encoders", headers={"Host": "127.0.0.1:1234"}).status_code == 200


def test_a_failure_of_ours_tells_a_client_nothing_of_it(client, served, monkeypatch):
    def fail(*_, **__):
        raise UserError("the vector of 'somebody else’s query' is not finite")

    monkeypatch.setattr(served[1].simcse, "search", fail)
    answer = client.post("/search", json={"queries": ["a"]})
    assert refusal(answer, 500) == "the search failed: the server's terminal says why"


def test_what_is_searched_and_within_which_limits(client):
    told = client.get("/encoders").json()
    assert told["encoders"] == [{"encoder": name, "sentences": len(SENTENCES), "layers": 3} for name in "AB"]
    assert told["limits"] == {"queries": 3, "characters": 50, "results": 4}


def test_the_schema_tells_the_limits(client):
    schema = client.get("/openapi.json").json()["components"]["schemas"]["Search"]["properties"]
    assert schema["queries"]["maxItems"] == 3 and schema["queries"]["items"]["maxLength"] == 50


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/script.js", "text/javascript"), ("/style.css", "text/css"), ("/icon.svg", "image/svg+xml")],
)
def test_the_page_may_load_nothing_from_elsewhere(path, kind, client):
    answer = client.get(path)
    assert answer.headers["Content-Type"].startswith(kind)
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';") and "http" not in policy and "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ["queries", "characters", "results"])
def test_limits_are_at_least_one(name):
    with pytest.raises(UserError, match=f"--max-{name} 0: it must be at least 1"):
        Limits(**{name: 0})
