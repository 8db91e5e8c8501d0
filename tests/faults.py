"""Faults of the system in this process: places that cannot be written to, and a disk that is full.

A place is a file that is opened to be written, a folder that is made, or a name that is given to a file. They are
counted in their order, by the audit events of Python, which see what Python writes; `file_limit` sees what native code
does, too.
"""

import errno
import multiprocessing
import multiprocessing.synchronize
import os
import resource
import signal
import sys
from typing import Any

_MADE = {"os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1}  # which argument is the new name
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
FULL, DENIED = "full", "denied"


def refuse(how: str, n: int, folders: list[str], log: str) -> None:
    """Refuse the n-th place under some folders: `full`, and all after it, as on a disk; or `denied`, it alone.

    Args:
        how: FULL or DENIED.
        n: from 1; 0 for none.
        folders: others are not counted.
        log: a file that gets a line a place, with the event and the name.
    """
    places = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        name = _new_name(event, arguments)
        if name is None or not name.startswith(tuple(folders)) or (event == "os.mkdir" and os.path.isdir(name)):
            return
        count += 1
        os.write(places, f"{event} {name}\n".encode())
        if n and (count >= n if how == FULL else count == n):
            number = errno.ENOSPC if how == FULL else errno.EACCES
            raise OSError(number, os.strerror(number), name)

    sys.addaudithook(hook)


def _new_name(event: str, arguments: tuple[Any, ...]) -> str | None:
    """The place that an event writes to; None where it does not write."""
    if event == "open":
        name, mode, flags = arguments
        writing = flags & _WRITING if mode is None else set(mode) & set("wax+")
    elif event in _MADE:
        name, writing = arguments[_MADE[event]], True
    else:
        return None
    return os.path.abspath(os.fsdecode(name)) if writing and not isinstance(name, int) else None


def kill_worker(n: int) -> None:
    """Kill a process that loads data, in the n-th call of `training_step`."""
    from simcse_pl.training.module import SimCSEModule

    calls, original = 0, SimCSEModule.training_step

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == n:
            os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)
        return original(*arguments, **options)

    SimCSEModule.training_step = counted  # type: ignore[method-assign]


def kill_worker_with_lock(n: int) -> None:
    """Kill a process that loads data in its n-th look at what tells it to end, whose lock it holds."""
    from torch.utils.data import get_worker_info

    from simcse_pl.training import watchdog as processes

    processes._GRACE_OF_TORCH = 1.0
    calls, original = 0, multiprocessing.synchronize.Event.is_set

    def counted(self: Any) -> bool:
        nonlocal calls
        if get_worker_info() is not None:
            calls += 1
            if calls == n:
                with self._cond:
                    os.kill(os.getpid(), signal.SIGKILL)
        return original(self)

    multiprocessing.synchronize.Event.is_set = counted  # type: ignore[method-assign]


def file_limit(size: int) -> None:
    """Refuse what would make any file larger than so many bytes: native code's, too, and while it is written."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # Python ignores the signal, and sees an error
