"""Reads what an offline run of W&B left, by the format of its file alone: LevelDB's log, in it protocol buffers."""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2


def records(path: Path) -> Iterator[wandb_internal_pb2.Record]:
    """Blocks of 32 KiB, after a header of 7 bytes."""
    data, position, parts = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


@dataclass
class OfflineRun:
    """What W&B would show of it; `started` is its first record, `exit` its status, None where it was killed."""

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
        """The points of a metric, in their order."""
        return [row[name] for row in self.history if name in row]

    def table(self, name: str) -> dict[str, Any]:
        """The last table of a name: `columns` and `data`."""
        return json.loads((self.folder / "files" / self.curve(name)[-1]["path"]).read_text())

    def image(self, name: str) -> Path:
        """The file of the last image of a name."""
        return self.folder / "files" / self.curve(name)[-1]["path"]


def offline_runs(folder: Path, killed: int = 0) -> list[OfflineRun]:
    """All parts of the runs in a folder, in the order in which they were started; so many of them have no end.

    The files are written by a process of W&B's own, which is waited for.
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
