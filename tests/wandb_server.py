"""A W&B server with the requests that `wandb sync` needs; it stores the runs that it receives."""

import gzip
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        data = gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data
        runs = self.server.runs  # type: ignore[attr-defined]
        if self.path.endswith("/file_stream"):
            self._reply(_streamed(runs[self.path.split("/")[-2]], json.loads(data)))
        elif self.path.endswith("/graphql"):
            answer = _answered(runs, json.loads(data))
            self._reply({"data": answer} if answer else {"errors": [{"message": "not in this server"}]})
        else:
            self._reply({})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._reply({})

    def _reply(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


def _streamed(run: dict[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
    files = sent.get("files") or {}
    if history := files.get("wandb-history.jsonl"):
        rows = [json.loads(line) for line in history["content"]]
        run["history"][history["offset"] : history["offset"] + len(rows)] = rows
    if summary := files.get("wandb-summary.json"):
        run["summary"] = json.loads(summary["content"][0])
    return {"exitcode": None, "limits": {}}


def _answered(runs: dict[str, Any], request: dict[str, Any]) -> Any:
    given, operation = request.get("variables") or {}, request.get("operationName")
    owner = {"id": "e", "name": "me"}
    if operation == "UpsertBucket":
        run = runs[given["name"]]
        run["known"] = True
        project = {"id": "p", "name": given["project"], "entity": owner}
        bucket = {"id": given["name"], "name": given["name"], "historyLineCount": len(run["history"])}
        return {"upsertBucket": {"bucket": bucket | {"project": project}, "inserted": True}}
    if operation == "RunResumeStatus":
        run = runs[given["name"]]
        tail = json.dumps([json.dumps(row) for row in run["history"][-1:]])
        bucket = {"id": given["name"], "name": given["name"], "historyLineCount": len(run["history"]), "config": "{}"}
        bucket |= {"summaryMetrics": json.dumps(run["summary"]), "historyTail": tail, "eventsTail": "[]", "tags": []}
        bucket |= {"logLineCount": 0, "eventsLineCount": 0, "wandbConfig": '{"t": 1}'}
        return {"model": {"id": "p", "name": "", "entity": owner, "bucket": bucket if run["known"] else None}}
    if "viewer" in request["query"]:
        return {"viewer": {"id": "v", "entity": "me", "username": "me", "teams": {"edges": []}}}
    return {}


@contextmanager
def wandb_server() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the address of a server, and `history` and `summary` of each run by its id."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Requests)
    server.runs = defaultdict(lambda: {"history": [], "summary": {}, "known": False})  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.runs  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
