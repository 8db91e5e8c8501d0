"""As much of a hub as loading a model or a dataset talks to, on loopback, and ways in which it may fail."""

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
HTML = b"<!DOCTYPE html>\n<html><body>Sign in to this network</body></html>"


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Hub"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_POST(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        hub.asked.append((self.command, path, self.headers.get("Authorization")))
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = hub.fault if hub.where in path and path != "/" else ""
        if hub.fault == "dead":
            hub.over.wait()
        elif fault.isdigit():
            self._send(int(fault), b"{}", body)
        elif fault == "loop":
            self._send(302, b"", body, Location=self.path)
        elif fault == "html":
            self._send(200, HTML, body, **{"Content-Type": "text/html"})
        elif path == "/":
            self._send(200, b"", body)
        elif path.startswith("/api/"):
            self._api(path, body)
        else:
            self._file(path, body, fault)

    def _api(self, path: str, body: bool) -> None:
        _, owner, name, *rest = [*path.removeprefix("/api/").split("/"), "", ""]
        folder = self.server.repositories.get(f"{owner}/{name}")
        if folder is None:
            self._send(404, b"{}", body, **{"X-Error-Code": "RepoNotFound"})
            return
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        if rest[:1] == ["tree"]:
            wanted = "/".join(rest[2:]).strip("/")
            tree = [
                {"type": "file", "path": file, "size": (folder / file).stat().st_size, "oid": "0" * 40}
                for file in files
                if file.startswith(wanted and f"{wanted}/")
            ]
            status, answer = (200, tree) if tree else (404, {})
        else:
            answer = {"id": f"{owner}/{name}", "sha": COMMIT, "private": False, "tags": [], "downloads": 0}
            answer |= {"likes": 0, "siblings": [{"rfilename": file} for file in files], "cardData": {}}
            status = 200
        error = {"X-Error-Code": "EntryNotFound"} if status == 404 else {}
        self._send(status, json.dumps(answer).encode(), body, **{"Content-Type": "application/json"}, **error)

    def _file(self, path: str, body: bool, fault: str) -> None:
        repository, _, file = path.removeprefix("/datasets/").strip("/").partition("/resolve/")
        folder = self.server.repositories.get(repository)
        place = folder / file.partition("/")[2] if folder else None
        if place is None or not place.is_file():
            code = "EntryNotFound" if folder else "RepoNotFound"
            self._send(404, b"", body, **{"X-Error-Code": code, "X-Repo-Commit": COMMIT})
            return
        content = place.read_bytes()
        headers = _file_headers(content)
        self._send(200, content, body, cut=fault == "cut", **headers)

    def _send(self, status: int, content: bytes, body: bool, cut: bool = False, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if body and cut:
            self.close_connection = True

    def log_message(self, *arguments: Any) -> None:
        pass


def _file_headers(content: bytes) -> dict[str, str]:
    return {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}


class Hub(ThreadingHTTPServer):
    """A hub with repositories that are folders.

    Attributes:
        repositories: by their names.
        fault: what it does in the place of an answer: a status; `dead` does not answer; `loop` of redirects; `html` for
            a file; `cut` half-way; nothing where empty.
        where: what is in the path that it does so for.
        asked: for each request its method, path and authorization.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.repositories: dict[str, Path] = {}
        self.fault = self.where = ""
        self.asked: list[tuple[str, str, str | None]] = []
        self.over = threading.Event()

    @property
    def address(self) -> str:
        """For HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def hub_server() -> Iterator[Hub]:
    """One that answers while the context lasts."""
    hub = Hub()
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        hub.over.set()
        hub.shutdown()
        hub.server_close()
