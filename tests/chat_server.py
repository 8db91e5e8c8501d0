"""An OpenAI-compatible server on loopback, with faults. Its language model adds a word to a sentence."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def reply_to(text: str) -> str:
    """Return a sentence that ends in Yes or No, or how such a hypothesis is related to its premise."""
    if "Hypothesis:" in text:
        return "Contradiction." if " No.\n" in text else "Entailment."
    instruction, _, sentence = text.rpartition("Sentence: ")
    return f"{sentence} No." if re.search("opposite|contradict|cannot", instruction) else f"{sentence} Yes."


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "ChatServer"

    def do_POST(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers.get("Authorization"), body))
        status, content = self.server.faults.pop(0) if self.server.faults else (200, None)
        if content is None:
            message = {"role": "assistant", "content": reply_to(body["messages"][-1]["content"])}
            usage = {"prompt_tokens": 7, "completion_tokens": 3}
            content = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})
        self.send_response(status)
        self.send_header("Content-Length", str(len(content.encode())))
        self.end_headers()
        self.wfile.write(content.encode())

    def log_message(self, *arguments: Any) -> None:
        pass


class ChatServer(ThreadingHTTPServer):
    """The server: `asked` has path, key and body of each request, `faults` statuses and contents to return first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.asked: list[tuple[str, str | None, dict[str, Any]]] = []
        self.faults: list[tuple[int, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """Run a server while the context lasts."""
    server = ChatServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
