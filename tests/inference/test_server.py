"""The search page and its endpoint against SimCSE.search."""

import html
import re
import socket
import threading
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import uvicorn
from fastapi.testclient import TestClient

from simcse_pl.inference.server import build_app
from simcse_pl.inference.simcse import SimCSE
from tests.conftest import SENTENCES

CORPUS = [*SENTENCES, '<img src=x onerror="alert(1)"> & <b>bold</b>', "Ein Hund läuft – 狗在跑 🐕"]


@pytest.fixture(scope="module")
def encoders(make_model):
    encoders = [SimCSE(make_model(kind), pooling="mean", device="cpu") for kind in ("bert", "roberta")]
    for encoder in encoders:
        encoder.build_index(CORPUS)
    return encoders


@pytest.fixture(scope="module")
def client(encoders):
    return TestClient(build_app(encoders))


@pytest.mark.parametrize("options", [{}, {"top_k": 4, "threshold": 0.5}])
def test_the_endpoint_finds_what_search_finds(options, client, encoders):
    queries = [" Two dogs run.\n", CORPUS[-1]]
    answer = client.post("/search", json={"queries": queries} | options).json()["encoders"]
    assert [one["encoder"] for one in answer] == [encoder.name for encoder in encoders]
    for encoder, one in zip(encoders, answer, strict=True):
        found = encoder.search([query.strip() for query in queries], **{"top_k": 5, "threshold": None} | options)
        assert one["results"] == [
            [{"sentence": near.sentence, "similarity": round(near.similarity, 4)} for near in query] for query in found
        ]


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ({"queries": []}, ["queries"]),
        ({"queries": ["a", " \t"]}, ["queries", 1]),
        ({"queries": ["a"], "top_k": 101}, ["top_k"]),
        ({"queries": ["a"], "treshold": 0.5}, ["treshold"]),
    ],
)
def test_invalid_requests_get_status_422_and_the_location(body, location, client):
    response = client.post("/search", json=body)
    assert response.status_code == 422 and response.json()["detail"][0]["loc"] == ["body", *location]


def columns(page):
    """Return the similarity and the sentence of each result, and the address of its search, by encoder."""
    row = re.compile(r'<tr><td>(.*?)</td><td dir="auto"><a href="\?(.*?)">(.*?)</a>')
    parts = page.split("<section>")[1:]
    return [
        [(float(value), html.unescape(text), parse_qs(link)) for value, link, text in row.findall(part)]
        for part in parts
    ]


def test_the_page_shows_the_neighbours_of_two_encoders_side_by_side(client, encoders):
    page = client.get("/", params={"q": CORPUS[-2], "top_k": 3, "threshold": -0.5}).text
    assert "<img" not in page and all(f"{encoder.name} <small>10 sentences" in page for encoder in encoders)
    for column, encoder in zip(columns(page), encoders, strict=True):
        near = encoder.search(CORPUS[-2], threshold=-0.5, top_k=3)
        assert [(value, text) for value, text, _ in column] == [(round(value, 3), text) for text, value in near]
        assert [link["q"] for _, _, link in column] == [[text] for text, _ in near]


def test_another_host_name_gets_no_answer():
    app = build_app([], allowed_hosts=["127.0.0.1"])
    assert TestClient(app, base_url="http://127.0.0.1:8000").get("/").status_code == 200
    assert TestClient(app, base_url="http://evil.example").get("/").status_code == 400


@pytest.mark.browser
def test_enter_ends_the_composition_of_an_input_method_and_then_searches(encoders, browser):
    from selenium.webdriver.support.ui import WebDriverWait

    server = uvicorn.Server(uvicorn.Config(build_app(encoders), log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        browser.get(f"http://127.0.0.1:{listener.getsockname()[1]}")

        def press_enter(code):
            for kind in ("keyDown", "keyUp"):
                text = {"text": "\r"} if (kind, code) == ("keyDown", 13) else {}
                event = {"type": kind, "key": "Enter", "windowsVirtualKeyCode": code, **text}
                browser.execute_cdp_cmd("Input.dispatchKeyEvent", event)

        browser.execute_cdp_cmd("Input.imeSetComposition", {"text": "gou", "selectionStart": 3, "selectionEnd": 3})
        press_enter(229)  # the code of a key that an input method handles
        browser.execute_cdp_cmd("Input.insertText", {"text": "狗在跑"})
        assert not urlsplit(browser.current_url).query
        press_enter(13)
        WebDriverWait(browser, 20).until(lambda page: "q=狗在跑&" in unquote(urlsplit(page.current_url).query))
        assert CORPUS[-1] in browser.find_element("css selector", "main").text
        server.should_exit = True
        thread.join()
