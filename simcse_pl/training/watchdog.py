"""The processes of a run: a sweep's jobs on several devices, and ranks that watch each other."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import Trainer
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher, subprocess_script

from simcse_pl.utils.errors import USER_ERROR_STATUS, FailureError, Stopped, UserError, exception_chain, first_line

_ROOT = str(Path(__file__).parents[1])  # of the package, which may lie in a clone that is not installed
_EVERY = 0.2  # seconds between looks at another process
_GRACE = 3.0  # seconds for a rank to end by itself, which Lightning does not grant for sure
_GRACE_OF_TORCH = 10.0  # which looks after those that prepare batches every 5
_AFTER_A_KILL = "resume=auto goes on, and data.num_workers=0 takes less memory"
_TO_END = {  # a job, which writes a checkpoint first; Ctrl-C has told it as well
    signal.SIGINT: [(30.0, signal.SIGINT), (15.0, signal.SIGKILL)],
    signal.SIGTERM: [(0.0, signal.SIGTERM), (60.0, signal.SIGKILL)],
}
_STARTED_BY = "SIMCSE_PL_STARTED_BY"  # a process that is still loading when the one that started it ends sees it too
_OF_RANKS = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK", "PL_GLOBAL_SEED")
_NOT_A_JOBS = (*_OF_RANKS, "SUBMITIT_EXECUTOR")  # submitit tells the process that it has started


def keep_to_rank_0s_folder() -> None:
    """Let Hydra write nothing for the ranks that torchrun or SLURM start beside the first: call it before Hydra.

    Lightning tells those that it starts the same. A sweep is refused here: its jobs start their own ranks.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ and {"-m", "--multirun"} & {*sys.argv}:
        print("error: a sweep starts the ranks of its jobs itself: leave torchrun out of it", file=sys.stderr)
        raise SystemExit(USER_ERROR_STATUS)
    rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
    if rank == "0" or any(argument.startswith("hydra.output_subdir=") for argument in sys.argv):
        return
    sys.argv += ["hydra.output_subdir=null", f"hydra.job.name=rank_{rank}"]
    if not any(argument.startswith("hydra.run.dir=") for argument in sys.argv):  # each would have one by its own clock
        sys.argv.append(f"hydra.run.dir={tempfile.gettempdir()}/simcse_pl-ranks-{os.getuid()}")


def submitits_signal() -> signal.Signals | None:
    """The signal by which submitit tells what it runs to stop and begin again; None for what it does not run."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return None
    return signal.Signals[f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"]


def starts_ranks(trainer: Trainer) -> bool:
    """Whether Lightning will start further processes from this one, as it does on several devices of one machine."""
    launcher = trainer.strategy.launcher
    if not isinstance(launcher, _SubprocessScriptLauncher):
        return False
    return trainer.world_size > 1 and not launcher.cluster_environment.creates_processes_externally


def run_job(module: str, arguments: Sequence[str]) -> None:
    """Run a module in a process of its own, and wait for it; what stops this process stops that one first.

    A job on several devices leaves a process group and an environment behind that a second job would trip over; in a
    process of its own it does not matter. By submitit's signal it is told to write a checkpoint, before submitit is.

    Args:
        module: run as `python -m module`.
        arguments: of the command line.

    Raises:
        Stopped: this process was told to stop, and the module has ended.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_A_JOBS}
    environment[_STARTED_BY] = str(os.getpid())
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, environment.get("PYTHONPATH")]))
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], env=environment)

    def stop(number: int, frame: Any) -> None:
        raise Stopped(number)

    submitits = submitits_signal()
    before = {number: signal.signal(number, stop) for number in [*_TO_END, *filter(None, [submitits])]}
    try:
        process.wait()
    except Stopped as stopped:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        told = signal.Signals[stopped.name]
        _end(process, _TO_END.get(told, _TO_END[signal.SIGTERM]))
        if told == submitits and callable(again := before[told]):
            again(told, None)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(process: subprocess.Popen[Any], signals: Sequence[tuple[float, signal.Signals]]) -> None:
    """Wait for a process to end, and send it a signal after so many seconds, one after the other."""
    for seconds, number in signals:
        try:
            process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            process.send_signal(number)
    process.wait()


@contextmanager
def watched_ranks(trainer: Trainer) -> Iterator[None]:
    """While the block runs, the end of one of the processes that Lightning started ends them all within seconds.

    Without it a collective waits for the one that is gone until it times out, which takes half an hour. Rank 0 says
    which one it was, and its exit status is 1.
    """
    launcher = trainer.strategy.launcher
    if (
        trainer.world_size == 1
        or not isinstance(launcher, _SubprocessScriptLauncher)
        or not isinstance(launcher.cluster_environment, LightningEnvironment)
    ):
        yield  # one process; or torchrun or SLURM watch
        return
    over, killed = threading.Event(), threading.Event()
    watches = []
    if _STARTED_BY in os.environ:
        watches.append(partial(_watch_parent, int(os.environ[_STARTED_BY]), trainer.global_rank, over))
    if trainer.local_rank == 0:
        subprocess_script._launch_process_observer = _watched_here  # type: ignore[attr-defined, assignment]
        os.environ[_STARTED_BY] = str(os.getpid())
        watches.append(partial(_watch_ranks, launcher, over, killed))
    for watch in watches:
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield
        trainer.strategy.barrier()  # none is still being watched when another, which had less to put away, ends
    except Exception as error:
        if not isinstance(error, UserError) and killed.wait(2 * _EVERY):  # a connection was lost, and its cause is told
            raise SystemExit(1) from None
        raise
    finally:
        over.set()


@contextmanager
def watched_workers() -> Iterator[None]:
    """Say in one line that a process which prepares batches was killed, as the kernel does where memory is short.

    Mostly torch raises an error, wherever this process is. But one that is killed with a lock in its hand leaves torch
    waiting for ever, and one amid a batch leaves it a connection that was reset.

    Raises:
        FailureError: one was.
    """
    over = threading.Event()
    killed = _KilledWorkers()
    threading.Thread(target=_watch_workers, args=(killed, over), daemon=True).start()
    try:
        yield
    except Exception as error:
        lines = map(first_line, exception_chain(error))  # a library may have made another error of it
        told = next((line.rstrip(". ") for line in lines if line.startswith("DataLoader worker")), None)
        line = told or killed.line()
        if line is None:
            raise
        raise FailureError(f"{line}; {_AFTER_A_KILL}") from error
    finally:
        over.set()


class _KilledWorkers:
    """Those that were ended by a signal, among the processes that load data, which are all that training forks."""

    def __init__(self) -> None:
        self._workers: set[BaseProcess] = set()

    def line(self) -> str | None:
        """What has happened to the first, if to any; torch itself ends them by SIGTERM."""
        self._workers.update(multiprocessing.active_children())
        for worker in self._workers:
            number = -(worker.exitcode or 0)
            if number > 0 and number not in _TO_END:
                return f"DataLoader worker (pid {worker.pid}) was ended by {signal.Signals(number).name}"
        return None


def _watched_here(processes: Sequence[subprocess.Popen[Any]]) -> None:
    """In the place of Lightning's own watch, which kills rank 0 where the others have ended before it, as told to."""


def _watch_workers(killed: _KilledWorkers, over: threading.Event) -> None:
    while not over.wait(_EVERY):
        if (line := killed.line()) and not over.wait(_GRACE_OF_TORCH):
            print(f"error: {line}; {_AFTER_A_KILL}", file=sys.stderr, flush=True)
            os._exit(1)


def _watch_parent(process: int, rank: int, over: threading.Event) -> None:
    while not over.wait(_EVERY):
        if os.getppid() != process:
            what = "rank 0" if rank else "the sweep"
            print(f"error: {what} has ended, and rank {rank} with it", file=sys.stderr, flush=True)
            os._exit(1)


def _watch_ranks(launcher: _SubprocessScriptLauncher, over: threading.Event, killed: threading.Event) -> None:
    while not over.wait(_EVERY):
        for rank, process in enumerate(launcher.procs, start=1):
            if not process.poll():
                continue
            if process.returncode < 0:  # else it has told why
                name = signal.Signals(-process.returncode).name
                line = f"error: rank {rank} (process {process.pid}) was ended by {name}; resume=auto goes on"
                print(line, file=sys.stderr, flush=True)
                killed.set()
            if not over.wait(_GRACE):
                for other in launcher.procs:
                    other.kill()
                os._exit(1)
