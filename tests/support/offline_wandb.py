"""Reader of the files of offline W&B runs: protocol buffers in the format of LevelDB's log."""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2


def records(path: Path) -> Iterator[wandb_internal_pb2.Record]:
    """Yield the records; the file has blocks of 32 KiB after a header of 7 bytes."""
    data, position, parts = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        if position + 7 + length > len(data):  # W&B's process is still writing it
            return
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


@dataclass
class OfflineRun:
    """Contents of a run; `started` is its first record, `exit` its exit status or None if it was killed."""

    folder: Path
    started: Any = None
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    artifacts: list[Any] = field(default_factory=list)
    preempting: bool = False
    exit: int | None = None

    def curve(self, name: str) -> list[float]:
        """Return the points of a metric in order."""
        return [row[name] for row in self.history if name in row]

    def table(self, name: str) -> dict[str, Any]:
        """Return `columns` and `data` of the last table with a name."""
        return json.loads((self.folder / "files" / self.curve(name)[-1]["path"]).read_text())

    def image(self, name: str) -> Path:
        """Return the file of the last image with a name."""
        return self.folder / "files" / self.curve(name)[-1]["path"]


def offline_runs(folder: Path, killed: int = 0) -> list[OfflineRun]:
    """Return all parts of the runs in a folder in the order of their starts, when W&B's process has written them.

    Args:
        folder: the folder.
        killed: number of parts that were killed and have no end.
    """
    for _ in range(100):
        runs = [_read(path) for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))]
        if sum(run.exit is None for run in runs) <= killed:
            return runs
        time.sleep(0.1)
    raise AssertionError(f"{folder}: a run has no end")


def _read(path: Path) -> OfflineRun:
    run = OfflineRun(path.parent)
    for record in records(path):
        match record.WhichOneof("record_type"):
            case "run":
                run.started = record.run
                _update(run.config, record.run.config.update)
            case "history":
                run.history.append({})
                _update(run.history[-1], record.history.item)
            case "summary":
                _update(run.summary, record.summary.update)
            case "config":
                _update(run.config, record.config.update)
            case "metric":
                run.metrics[record.metric.name or record.metric.glob_name] = record.metric
            case "artifact":
                run.artifacts.append(record.artifact)
            case "preempting":
                run.preempting = True
            case "exit":
                run.exit = record.exit.exit_code
    return run


def _update(values: dict[str, Any], items: Any) -> None:
    for item in items:
        *parents, name = item.nested_key or [item.key]
        node = values
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = json.loads(item.value_json)
