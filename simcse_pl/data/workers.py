"""Worker processes, which prepare batches."""

import copy
import multiprocessing
import signal
from typing import Any

from simcse_pl.utils.code import current_folder_on_path
from simcse_pl.utils.private import at_exit


def worker_options(count: int) -> dict[str, Any]:
    """Return the options of a DataLoader with worker processes."""
    vars(context := copy.copy(multiprocessing.get_context()))["Process"] = _Worker
    return {
        "num_workers": count,
        "persistent_workers": True,
        "worker_init_fn": _ignore_sigterm,
        "multiprocessing_context": context,
    }


def _ignore_sigterm(worker: int) -> None:
    """Ignore SIGTERM, which the whole process group receives: the trainer needs its workers until it has stopped."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class _Worker(multiprocessing.Process):
    """A worker that this process kills at its end. Otherwise multiprocessing would send SIGTERM, and wait."""

    def start(self) -> None:
        with current_folder_on_path():  # spawn and forkserver send the path, and views may be in the user's files
            super().start()
        at_exit(self._end)

    def _end(self) -> None:
        if self.is_alive():  # because of an error that keeps its loader
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler reports its end as a failure
            self.kill()
