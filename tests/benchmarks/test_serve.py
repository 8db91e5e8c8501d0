import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.serve import waits

SENTENCES = [f"sentence {i}" for i in range(20)]


class Handler(BaseHTTPRequestHandler):
    """Answers what is asked, or refuses it, and keeps it."""

    protocol_version = "HTTP/1.1"
    status = 200

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.client_address, self.path, *asked["queries"]))
        self.send_response(self.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"no")

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_every_client_asks_its_own_sentences_over_one_connection(server):
    took = waits(f"http://127.0.0.1:{server.server_port}", SENTENCES, clients=4, seconds=0.2)
    assert len(took) == len(server.asked) - 4 and min(took) > 0  # the first of each is not counted
    assert {path for _, path, _ in server.asked} == {"/search"}
    clients = {client for client, *_ in server.asked}
    asked_by = [{sentence for other, _, sentence in server.asked if other == client} for client in clients]
    assert len(asked_by) == 4 and all(any(own <= set(SENTENCES[i::4]) for i in range(4)) for own in asked_by)


def test_a_refusal_is_no_answer(server, monkeypatch):
    monkeypatch.setattr(Handler, "status", 422)
    with pytest.raises(RuntimeError, match="no"):
        waits(f"http://127.0.0.1:{server.server_port}", SENTENCES, clients=1, seconds=0.2)
