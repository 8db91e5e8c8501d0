"""Start jobs of a sweep in separate processes, and end processes with the one that started them."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simcse_pl.utils.errors import Stopped

_ROOT = str(Path(__file__).parents[2])  # of the package, which may be in a clone that is not installed
_RANK_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK", "PL_GLOBAL_SEED")
_NOT_INHERITED = (*_RANK_VARIABLES, "SUBMITIT_EXECUTOR")
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Let Linux kill this process when its parent ends, so that no rank waits for one that was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def submitits_signal() -> signal.Signals | None:
    """Return the signal with which submitit preempts this process, None without submitit."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return None
    return signal.Signals[f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"]


def run_job(module: str, arguments: Sequence[str]) -> None:
    """Run `python -m module arguments` in a new process, and wait for it.

    A job on several devices leaves a process group and environment variables behind, which a second
    job in the same process would find. The job gets SIGINT and SIGTERM, and SIGTERM for submitit's signal; it writes
    a checkpoint, and then this function raises Stopped.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, environment.get("PYTHONPATH")]))
    # In a session of its own, the job does not get a terminal's Ctrl-C twice.
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], env=environment, start_new_session=True)
    submitits = submitits_signal()
    received: list[signal.Signals] = []

    def forward(number: int, frame: Any) -> None:
        received.append(signal.Signals(number))
        process.send_signal(signal.SIGTERM if number == submitits else number)

    signals = [signal.SIGINT, signal.SIGTERM, *filter(None, [submitits])]
    handlers = {number: signal.signal(number, forward) for number in signals}
    try:
        process.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        if received[0] == submitits and callable(requeue := handlers[received[0]]):
            requeue(received[0], None)
        raise Stopped(received[0])
