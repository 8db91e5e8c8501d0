"""`simcse serve` in a process of its own, and its error messages."""

import json
import signal
import socket
import sys
import urllib.error
import urllib.request

import pytest

from simcse_pl.inference.simcse import SimCSE
from tests.conftest import SENTENCES, serving


@pytest.fixture
def error_of(command, encoder, sentences):
    """Run the command with a tiny encoder and sentences, and return its error."""
    places = {"ENCODER": encoder, "FILE": [sentences]}

    def run(*arguments):
        parts = (part for argument in arguments for part in places.get(argument, [argument]))
        return command("serve", *parts, status=2).err

    return run


def search(address, queries, **options):
    body = json.dumps({"queries": queries} | options).encode()
    request = urllib.request.Request(f"{address}/search", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["encoders"]


def test_two_encoders_search_an_index_and_a_file(make_model, tmp_path):
    rows = [{"id": str(i), "text": text} for i, text in enumerate(["Why now?", "Two guitars.", "Cold snow!"])]
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    simcse = SimCSE(make_model("bert"), pooling="mean", device="cpu")
    simcse.build_index(SENTENCES, precision="uint8")
    simcse.save_index(tmp_path / "index")
    encoders = [make_model("bert"), make_model("bert"), "--pooling", "mean,cls", "--device", "cpu"]
    sources = ["--sentences", tmp_path / "index", "--sentences", tmp_path / "more.jsonl", "--column", "text"]
    with serving(*encoders, *sources, "--host", "0.0.0.0", "--max-queries", "2") as (process, address):
        local = address.replace("0.0.0.0", "127.0.0.1")
        with urllib.request.urlopen(f"{local}/encoders", timeout=60) as response:
            listed = json.load(response)["encoders"]
        assert [(one["pooling"], one["sentences"]) for one in listed] == [("mean", 8), ("cls", 3)]
        first, second = search(local, [SENTENCES[0], "Cold snow!"], top_k=1)
        assert [one["sentence"] for (one,) in first["results"]] == [
            near.sentence for (near,) in simcse.search([SENTENCES[0], "Cold snow!"], threshold=None, top_k=1)
        ]
        assert second["results"][1] == [{"sentence": "Cold snow!", "similarity": 1.0}]
        with pytest.raises(urllib.error.HTTPError, match="422"):
            search(local, ["a", "b", "c"])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert (process.stdout.read(), process.stderr.read()) == ("", "")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["ENCODER", "--sentences", "."], ". holds no index"),
        (["ENCODER", "--sentences", "FILE", "--sentences", "FILE"], "--sentences: 2 values for 1 encoder"),
        (["a", "b", "--sentences", "FILE", "--pooling", "a,b,c"], "--pooling: 3 values for 2 encoders"),
        (["ENCODER", "--sentences", "FILE", "--host", "no such host"], "cannot listen on --host no such host --port 0"),
    ],
)
def test_mistakes_end_with_one_line(arguments, line, error_of):
    assert line in error_of(*arguments, "--port", "0")


def test_a_port_in_use_is_reported_before_the_encoder_is_loaded(error_of, monkeypatch):
    monkeypatch.setattr("simcse_pl.cli.serve.load_simcse", None)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert "Address already in use" in error_of("ENCODER", "--sentences", "FILE", "--port", port)


def test_a_missing_package_is_named(error_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert error_of("ENCODER", "--sentences", "FILE") == "error: serve needs uvicorn: pip install fastapi uvicorn\n"
