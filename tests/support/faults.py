"""Faults in this process: writes that fail, signals at a chosen step, and a hub. Forks call them by name.

Writes are files opened for writing, new folders and renames. They are counted in order, by Python's
audit events, which see what Python writes; `file_limit` also affects native code.
"""

import errno
import importlib
import os
import pkgutil
import resource
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

_NEW_NAME = {"os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1}  # the argument with the new name
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
FULL, DENIED = "full", "denied"


def fail_write(how: str, n: int, folders: list[str], log: str) -> None:
    """Let the n-th write under some folders fail: FULL also fails all later ones, DENIED only this one.

    Args:
        how: FULL or DENIED.
        n: from 1; 0 for none.
        folders: only writes under these count.
        log: a file that gets one line per write, with the event and the name.
    """
    writes = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        name = _new_name(event, arguments)
        if name is None or not name.startswith(tuple(folders)) or (event == "os.mkdir" and os.path.isdir(name)):
            return
        count += 1
        os.write(writes, f"{event} {name}\n".encode())
        if n and (count >= n if how == FULL else count == n):
            number = errno.ENOSPC if how == FULL else errno.EACCES
            raise OSError(number, os.strerror(number), name)

    sys.addaudithook(hook)


def _new_name(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Return the path that an event writes to, or None."""
    if event == "open":
        name, mode, flags = arguments
        writing = flags & _WRITING if mode is None else set(mode) & set("wax+")
    elif event in _NEW_NAME:
        name, writing = arguments[_NEW_NAME[event]], True
    else:
        return None
    return os.path.abspath(os.fsdecode(name)) if writing and not isinstance(name, int) else None


def file_limit(size: int) -> None:
    """Let writes beyond this file size fail, in native code too."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # Python ignores the signal and gets an error


def online() -> None:
    """Let huggingface_hub read the environment again, and repeat a failed download at once."""
    import huggingface_hub.constants

    importlib.reload(huggingface_hub.constants)
    time.sleep = lambda _: None


def _in_call(owner: Any, name: str, n: int, action: Callable[..., Any]) -> None:
    """Call `action` with the arguments of the n-th call of a function, before it."""
    calls, original = 0, getattr(owner, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == n:
            action(*arguments)
        return original(*arguments, **options)

    setattr(owner, name, counted)


def _signal_in_step(number: int, n: int) -> None:
    """Send this process a signal in the n-th training step."""
    from simcse_pl.module import SimCSEModule

    send = _die if number == signal.SIGKILL else lambda *_: os.kill(os.getpid(), number)
    _in_call(SimCSEModule, "training_step", n, send)


def _die(*_: Any) -> None:
    """Kill this process, and do nothing more until the signal has arrived, which takes a moment in some containers."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


kill_in_step = partial(_signal_in_step, signal.SIGKILL)
terminate_in_step = partial(_signal_in_step, signal.SIGTERM)


def kill_while_saving(n: int) -> None:
    """Kill this process when half of the n-th checkpoint is written."""
    import torch

    def half(content: Any, file: Any) -> None:
        file.write(b"PK half of a checkpoint")
        file.flush()
        _die()

    _in_call(torch, "save", n, half)


def kill_encoding(shard_size: int, owner: str, name: str, n: int) -> None:
    """Let `simcse encode` write small shards, and be killed in the n-th call of a function (0 for never)."""
    from simcse_pl.data import sources
    from simcse_pl.tools import encode

    encode.CHUNK_SIZE = shard_size
    sources._RECENT = float("inf")  # no checksum is written to the cache, which would count as a rename
    if n:
        _in_call(pkgutil.resolve_name(owner), name, n, _die)
