"""Start jobs of a sweep in separate processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher

from simcse_pl.utils.errors import Stopped

STARTED_BY = "SIMCSE_PL_STARTED_BY"  # the parent's process id, because the parent may end before the child reads it
_ROOT = str(Path(__file__).parents[2])  # of the package, which may be in a clone that is not installed
_RANK_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK", "PL_GLOBAL_SEED")
_NOT_INHERITED = (*_RANK_VARIABLES, "SUBMITIT_EXECUTOR")
_SIGNALS_TO_A_JOB = {  # by the received signal: (seconds to wait for the job, the signal to send it then)
    signal.SIGINT: [(30.0, signal.SIGINT), (15.0, signal.SIGKILL)],  # a terminal has sent the first Ctrl-C itself
    signal.SIGTERM: [(0.0, signal.SIGTERM), (60.0, signal.SIGKILL)],
}


def starts_ranks(trainer: Trainer) -> bool:
    """Return whether Lightning will start further ranks from this process."""
    launcher = trainer.strategy.launcher
    if trainer.world_size == 1 or not isinstance(launcher, _SubprocessScriptLauncher):
        return False
    return not launcher.cluster_environment.creates_processes_externally


def submitits_signal() -> signal.Signals | None:
    """Return the signal with which submitit preempts this process, None without submitit."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return None
    return signal.Signals[f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"]


def run_job(module: str, arguments: Sequence[str]) -> None:
    """Run `python -m module arguments` in a new process, and wait for it.

    A job on several devices leaves a process group and environment variables behind, which a second
    job in the same process would find. On SIGINT, SIGTERM and submitit's signal this function lets the
    job write a checkpoint, and then raises Stopped.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    environment[STARTED_BY] = str(os.getpid())
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, environment.get("PYTHONPATH")]))
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], env=environment)

    def stop(number: int, frame: Any) -> None:
        raise Stopped(number)

    submitits = submitits_signal()
    handlers = {number: signal.signal(number, stop) for number in [*_SIGNALS_TO_A_JOB, *filter(None, [submitits])]}
    try:
        process.wait()
    except Stopped as stopped:
        for number in handlers:
            signal.signal(number, signal.SIG_IGN)
        received = signal.Signals[stopped.name]
        for seconds, number in _SIGNALS_TO_A_JOB.get(received, _SIGNALS_TO_A_JOB[signal.SIGTERM]):
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(number)
        process.wait()
        if received == submitits and callable(requeue := handlers[received]):
            requeue(received, None)
        raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
