"""`simcse serve` in a process of its own, and its error messages."""

import json
import signal
import subprocess
import sys
import urllib.request

from simcse_pl.inference.simcse import SimCSE
from tests.conftest import ROOT, SENTENCES


def test_two_encoders_search_an_index_and_a_file(make_model, tmp_path):
    (tmp_path / "more.jsonl").write_text('{"id": "1", "text": "Why now?"}\n{"id": "2", "text": "Cold snow!"}\n')
    simcse = SimCSE(make_model("bert"), pooling="mean", device="cpu")
    simcse.build_index(SENTENCES, precision="int8")
    simcse.save_index(tmp_path / "index")
    encoders = [make_model("bert"), make_model("bert"), "--pooling", "mean,cls", "--device", "cpu"]
    sources = ["--sentences", tmp_path / "index", "--sentences", tmp_path / "more.jsonl", "--column", "text"]
    command = [sys.executable, "-m", "simcse_pl", "serve", *map(str, [*encoders, *sources]), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        assert address, process.stderr.read()
        body = json.dumps({"queries": [SENTENCES[0], "Cold snow!"], "top_k": 1}).encode()
        request = urllib.request.Request(f"{address}/search", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            first, second = json.load(response)["encoders"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert (process.stdout.read(), process.stderr.read()) == ("", "")
    near = simcse.search([SENTENCES[0], "Cold snow!"], threshold=None, top_k=1)
    assert [one["sentence"] for (one,) in first["results"]] == [one.sentence for (one,) in near]
    assert second["results"][1] == [{"sentence": "Cold snow!", "similarity": 1.0}]
