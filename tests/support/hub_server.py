"""A Hugging Face Hub on loopback for loading files of models and data sets, with faults."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Hub"

    def _answer(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        hub.asked.append((path, self.headers.get("Authorization")))
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = hub.fault if hub.where in path else ""
        if hub.fault == "dead":
            if path.startswith("/api/models") and sum(path == asked for asked, _ in hub.asked) == 1:
                hub.over.wait()
            self.close_connection = True
        elif fault.isdigit():
            self._send(int(fault), b"{}")
        elif path.startswith("/api/"):
            self._api(path)
        else:
            self._file(path)

    do_HEAD = do_GET = do_POST = _answer  # noqa: N815 - the names that http.server calls

    def _api(self, path: str) -> None:
        name = path.partition("s/")[2]  # after models/ or datasets/
        if name in self.server.repositories:
            answer = {"id": name, "sha": COMMIT, "private": False, "tags": [], "downloads": 0, "likes": 0}
            self._send(200, json.dumps(answer).encode(), **{"Content-Type": "application/json"})
        else:
            self._send(404, b"{}", **{"X-Error-Code": "EntryNotFound" if "/tree/" in name else "RepoNotFound"})

    def _file(self, path: str) -> None:
        repository, _, file = path.removeprefix("/datasets/").strip("/").partition("/resolve/")
        folder = self.server.repositories.get(repository)
        place = folder / file.partition("/")[2] if folder else None
        if place is None or not place.is_file():
            code = "EntryNotFound" if folder else "RepoNotFound"
            self._send(404, b"", **{"X-Error-Code": code, "X-Repo-Commit": COMMIT})
            return
        content = place.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        self._send(200, content, ETag=etag, **{"X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"})

    def _send(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        pass


class Hub(ThreadingHTTPServer):
    """A Hub whose repositories are folders.

    Attributes:
        repositories: folders by repository name.
        fault: the answer to a request: a status; the correct answer if empty. `dead` is no
            answer to the first request about a model, and a closed connection for all others, which takes no time.
        where: the part of a path that has the fault.
        asked: path and authorization of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.repositories: dict[str, Path] = {}
        self.fault = self.where = ""
        self.asked: list[tuple[str, str | None]] = []
        self.over = threading.Event()

    @property
    def address(self) -> str:
        """The value of HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Run a Hub while the context lasts."""
    hub = Hub()
    threading.Thread(target=hub.serve_forever, args=[0.01], daemon=True).start()  # seconds to its end
    try:
        yield hub
    finally:
        hub.over.set()
        hub.shutdown()
        hub.server_close()
