"""Further processes, which tokenize rows or prepare batches."""

import copy
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from simcse_pl.utils.private import at_exit
from simcse_pl.utils.processes import available_cpus

if TYPE_CHECKING:
    from simcse_pl.data.token_cache import Block, Tokenize, TokenizedBlock

_MOST_PROCESSES = 16  # more would wait for the one that reads


def tokenized_by_processes(
    blocks: "Iterator[Block]", make: "Tokenize", processes: int | None
) -> "Iterable[TokenizedBlock]":
    """Return the blocks in order, tokenized by further processes; None for one for each CPU, at most 16."""
    if processes is None:
        processes = min(cpus, _MOST_PROCESSES) if (cpus := available_cpus()) > 1 else 0
    return DataLoader(
        make,
        batch_size=None,
        sampler=blocks,  # type: ignore[arg-type]
        collate_fn=tuple,  # the block as it is
        num_workers=processes,
        worker_init_fn=_one_thread,
    )


def _one_thread(worker: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


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
        super().start()
        at_exit(self._end)

    def _end(self) -> None:
        if self.is_alive():  # because of an error that keeps its loader
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler reports its end as a failure
            self.kill()
