"""End a run if one of its ranks, or a worker process of its data loader, is killed."""

import multiprocessing
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import Trainer
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher, subprocess_script

from simcse_pl.training.launch import STARTED_BY
from simcse_pl.utils.errors import FailureError, UserError

_INTERVAL = 0.2  # seconds between two looks at other processes
_RANK_GRACE = 3.0  # seconds in which this rank may end by itself after another one ended
_WORKER_GRACE = 10.0  # torch checks its workers every 5 seconds
_OF_TORCH = re.compile(r"DataLoader worker \(pid (\d+)\) is killed by signal: ([^.]+)\.")


@contextmanager
def watched_ranks(trainer: Trainer) -> Iterator[None]:
    """Within the block, end all ranks within seconds if one of them is killed.

    Otherwise the other ranks would wait in a collective operation until it times out after half an hour.
    Rank 0 prints which rank was killed, and exits with status 1. torchrun and SLURM watch the ranks that
    they start.
    """
    launcher = trainer.strategy.launcher
    environment = launcher.cluster_environment if isinstance(launcher, _SubprocessScriptLauncher) else None
    if trainer.world_size == 1 or not isinstance(environment, LightningEnvironment):
        yield
        return
    done, killed = threading.Event(), threading.Event()
    if STARTED_BY in os.environ:
        _start(_watch_parent, int(os.environ[STARTED_BY]), trainer.global_rank, done)
    if trainer.local_rank == 0:
        # Lightning's observer kills rank 0 if another rank ends first after SIGTERM
        subprocess_script._launch_process_observer = lambda processes: None  # type: ignore[attr-defined, assignment]
        os.environ[STARTED_BY] = str(os.getpid())
        _start(_watch_ranks, launcher, done, killed)
    try:
        yield
        trainer.strategy.barrier()  # so that no rank that ends early is still watched
    except Exception as error:
        if not isinstance(error, UserError) and killed.wait(2 * _INTERVAL):  # this error is a lost connection
            raise SystemExit(1) from None
        raise
    finally:
        done.set()


@contextmanager
def watched_workers() -> Iterator[None]:
    """Within the block, raise FailureError if a worker process of the data loader is killed.

    The kernel kills workers if memory runs out. Usually an error of torch ends the block. If the
    worker held a lock, torch waits forever, and this function ends the process.
    """
    done = threading.Event()
    workers: set[BaseProcess] = set()
    _start(_watch_workers, workers, done)
    try:
        yield
    except Exception as error:
        if message := _killed_worker(workers) or _message_of(error):
            raise FailureError(message) from error
        raise
    finally:
        done.set()


def _start(watch: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=watch, args=arguments, daemon=True).start()


def _print(message: str) -> None:
    print(f"error: {message}", file=sys.stderr, flush=True)


def _watch_parent(process: int, rank: int, done: threading.Event) -> None:
    while not done.wait(_INTERVAL):
        if os.getppid() != process:
            _print(f"{'rank 0' if rank else 'the sweep'} has ended, so rank {rank} ends")
            os._exit(1)


def _watch_ranks(launcher: _SubprocessScriptLauncher, done: threading.Event, killed: threading.Event) -> None:
    while not done.wait(_INTERVAL):
        for rank, process in enumerate(launcher.procs, start=1):
            if not process.poll():
                continue
            if process.returncode < 0:  # others have printed their error
                name = signal.Signals(-process.returncode).name
                _print(f"rank {rank} (process {process.pid}) was ended by {name}: continue with resume=auto")
                killed.set()
            if not done.wait(_RANK_GRACE):
                for other in launcher.procs:
                    other.kill()
                os._exit(1)


def _watch_workers(workers: set[BaseProcess], done: threading.Event) -> None:
    while not done.wait(_INTERVAL):
        if (message := _killed_worker(workers)) and not done.wait(_WORKER_GRACE):
            _print(message)
            os._exit(1)


def _killed_worker(workers: set[BaseProcess]) -> str | None:
    """Add this process's children to `workers`, and return a message if one of them was killed."""
    workers.update(multiprocessing.active_children())  # which forgets a process that has ended
    for worker in list(workers):
        number = -(worker.exitcode or 0)
        if number > 0 and number not in (signal.SIGINT, signal.SIGTERM):  # with which torch and Ctrl-C end them
            return _message(worker.pid, signal.Signals(number).name)
    return None


def _message_of(error: Exception) -> str | None:
    """Return a message if torch reports a killed worker, which `_watch_workers` may not have seen yet."""
    found = _OF_TORCH.match(str(error))
    names = [number.name for number in signal.Signals if found and signal.strsignal(number) == found[2]]
    return _message(found[1], names[0]) if found and names else None


def _message(process: int | str | None, name: str) -> str:
    advice = "continue with resume=auto; data.num_workers=0 uses less memory"
    return f"DataLoader worker (process {process}) was ended by {name}: {advice}"
