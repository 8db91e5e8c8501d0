"""Runs of train.py in forks of one process that has imported everything: many real runs in little time.

Takes a JSON list of runs on standard input, each with `arguments` of train.py, and perhaps `kill`: [what, n], to be
killed by SIGKILL in the n-th call of `training_step`, or half-way through the n-th checkpoint that is `saved`, or to be
`told` to stop by SIGTERM in the n-th call of `training_step`. Prints a list of their exit statuses, with what they
wrote to standard error.
"""

import json
import os
import runpy
import signal
import sys
import tempfile
from pathlib import Path

import torch

from simcse_pl.module import SimCSEModule

TRAIN = Path(__file__).parent.parent / "train.py"


def kill_at(what: str, n: int) -> None:
    """Patch the n-th call of something to end this process at once."""
    calls = 0
    original = torch.save if what == "saved" else SimCSEModule.training_step

    def counted(*arguments, **options):
        nonlocal calls
        calls += 1
        if what == "told" and calls == n:
            os.kill(os.getpid(), signal.SIGTERM)
        if calls < n or what == "told":
            return original(*arguments, **options)
        if what == "saved":
            Path(arguments[1]).write_bytes(b"PK half of a checkpoint")
        return os.kill(os.getpid(), signal.SIGKILL)

    if what == "saved":
        torch.save = counted
    else:
        SimCSEModule.training_step = counted


def run(arguments: list[str], kill: list | None) -> list:
    """One run in a fork: its status, negative where a signal ended it, and its standard error."""
    with tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(errors.fileno(), 2)
            if kill:
                kill_at(*kill)
            sys.argv = [str(TRAIN), *arguments]
            try:
                runpy.run_path(str(TRAIN), run_name="__main__")
            except SystemExit as end:
                os._exit(end.code or 0)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        errors.seek(0)
        return [os.waitstatus_to_exitcode(status), errors.read()]


if __name__ == "__main__":
    json.dump([run(one["arguments"], one.get("kill")) for one in json.load(sys.stdin)], sys.stdout)
