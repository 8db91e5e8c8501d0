"""An OpenAI-compatible server on loopback, with faults. Its language model adds Yes or No to a sentence."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def reply_to(text: str) -> str:
    """Return a sentence, or how a hypothesis that ends so is related to its premise."""
    if "Hypothesis:" in text:
        return "Contradiction." if " No.\n" in text else "Entailment."
    instruction, _, sentence = text.rpartition("Sentence: ")
    return f"{sentence} No." if re.search("opposite|contradict|cannot", instruction) else f"{sentence} Yes."


class _Requests(BaseHTTPRequestHandler):
    server: "ChatServer"

    def do_POST(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers.get("Authorization"), body))
        message = {"content": reply_to(body["messages"][-1]["content"])}
        answer = {"choices": [{"message": message}], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
        status, content = self.server.faults.pop(0) if self.server.faults else (200, json.dumps(answer))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(content.encode())

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def chat_server() -> Iterator["ChatServer"]:
    """Run a server while the context lasts."""
    with ChatServer(("127.0.0.1", 0), _Requests) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()  # seconds to its end
        yield server
        server.shutdown()


class ChatServer(ThreadingHTTPServer):
    """The server. `asked` has the path, key and body of each request; `faults` are replies to give first."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: list[tuple[str, str | None, dict[str, Any]]] = []
        self.faults: list[tuple[int, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
