"""The rows of each contrastive batch, this rank's part of them, and where a resumed run continues."""

import atexit
import multiprocessing.util
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from simcse_pl.data.row_order import LISTED, grouped, permuted
from simcse_pl.utils.errors import UserError

RowKey = tuple[int, int]  # the epoch, and the position among the chosen rows
BatchKey = tuple[str, list[RowKey], tuple[int, ...]]  # the data set, this rank's rows, and the number of each rank's
MakeBatch = Callable[[Sequence[RowKey]], dict[str, Any]]
Sampling = Literal["proportional", "round_robin", "concatenated"]


class ContrastiveBatches:
    """This rank's part of each contrastive batch of a data set, shuffled by the seed and the epoch.

    The batches do not depend on the number of ranks. Each rank takes a contiguous part of a batch, in rank order; the
    sizes of the parts differ by at most one. Only the last batch of an epoch may be smaller. If it has fewer rows than
    there are ranks, its rows join the batch before it.

    Args:
        rows: the number of rows.
        batch_size: the rows of a batch, over all ranks together.
        ranks, rank: the number of ranks, and the rank of this process.
        seed: seed of the order.
        groups: [rows], the group of each row, of which batches are drawn (see row_order.grouped); None for one group.

    Raises:
        UserError: there are more ranks than rows, or than rows in a batch.
    """

    def __init__(
        self,
        rows: int,
        batch_size: int,
        ranks: int = 1,
        rank: int = 0,
        seed: int = 42,
        groups: NDArray[np.integer] | None = None,
    ) -> None:
        if min(batch_size, rows) < ranks:
            raise UserError(f"data.batch_size={batch_size}, {rows} rows: both must be at least {ranks}, one per device")
        self.rows, self.batch_size, self.seed = rows, batch_size, seed
        self.ranks, self.rank, self.groups = ranks, rank, groups
        self.batches_of_one_rank = -(-rows // batch_size)
        joins = self.batches_of_one_rank > 1 and (rows - 1) % batch_size + 1 < ranks
        self.batches = self.batches_of_one_rank - joins

    def draw(self, epoch: int, start: int = 0) -> Iterator[tuple[list[int], tuple[int, ...]]]:
        """Yield this rank's rows of each batch of an epoch from `start` on, and the number of rows of each rank."""
        seed, listed = self.seed + epoch, None
        if self.groups is not None:
            listed = torch.from_numpy(grouped(self.groups, self.batch_size, seed))
        elif self.rows <= LISTED:
            listed = torch.randperm(self.rows, generator=torch.Generator().manual_seed(seed))
        for batch in range(start, self.batches):
            first = batch * self.batch_size
            size = (self.rows if batch == self.batches - 1 else first + self.batch_size) - first
            ends = [size * rank // self.ranks for rank in range(self.ranks + 1)]
            counts = tuple(end - begin for begin, end in pairwise(ends))
            part = first + ends[self.rank], first + ends[self.rank + 1]
            rows = permuted(*part, self.rows, seed) if listed is None else listed[slice(*part)]
            yield rows.tolist(), counts


class MixedBatchSampler(Sampler[BatchKey]):
    """Yields the batches of an epoch, each of one data set. All ranks draw the same sets in the same order.

    Args:
        sets: the batches of each data set.
        sampling: `proportional`: all batches of all sets, in random order. `round_robin`: one batch of each set in
            turn, until the set with the fewest batches ends. `concatenated`: one set after the other.
        seed: seed of the order of the sets.
        start: an epoch, and the batch that it starts at if it is resumed; all other epochs start at their first.

    Attributes:
        epoch: the epoch that is drawn next; Lightning sets it.
    """

    def __init__(
        self,
        sets: Mapping[str, ContrastiveBatches],
        sampling: Sampling = "proportional",
        seed: int = 42,
        start: tuple[int, int] = (0, 0),
    ) -> None:
        self.sets, self.sampling, self.seed, self.start = sets, sampling, seed, start
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._sets_drawn(self.epoch))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that is drawn next."""
        self.epoch = epoch

    def _sets_drawn(self, epoch: int) -> NDArray[np.integer]:
        """Return the place in `sets` of the set of each batch, without last batches whose rows join the one before."""
        counts = [batches.batches_of_one_rank for batches in self.sets.values()]
        if self.sampling == "round_robin":
            drawn = np.tile(np.arange(len(counts)), min(counts))
        else:
            drawn = np.repeat(np.arange(len(counts)), counts)
        if self.sampling == "proportional" and len(counts) > 1:
            order = torch.randperm(len(drawn), generator=torch.Generator().manual_seed(self.seed + epoch))
            drawn = drawn[order.numpy()]
        for place, batches in enumerate(self.sets.values()):
            if len(of_set := np.flatnonzero(drawn == place)) > batches.batches:
                drawn = np.delete(drawn, of_set[-1])
        return drawn

    def __iter__(self) -> Iterator[BatchKey]:
        epoch, names = self.epoch, list(self.sets)
        sets = self._sets_drawn(epoch)
        start = self.start[1] if epoch == self.start[0] else 0
        done = np.bincount(sets[:start], minlength=len(names))
        batches = [own.draw(epoch, int(first)) for own, first in zip(self.sets.values(), done, strict=True)]
        for place in sets[start:]:
            rows, counts = next(batches[place])
            yield names[place], [(epoch, row) for row in rows], counts


class _Batches(Dataset[dict[str, Any]]):
    def __init__(self, make: Mapping[str, MakeBatch]) -> None:
        self.make = make

    def __getitem__(self, key: BatchKey) -> dict[str, Any]:
        name, keys, counts = key
        return self.make[name](keys) | {"counts": counts}


class ContrastiveDataLoader(DataLoader[dict[str, Any]]):
    """A DataLoader of contrastive batches.

    The loader's iterator reads from the sampler only when its first batch is requested. Lightning creates the first
    iterator before it sets the epoch of a resumed run, and workers would draw keys as soon as the iterator exists.

    Args:
        make: from the rows of a batch to the batch, for each data set.
        batches: the data set and the rows of each batch.
        num_workers: the number of worker processes; 0 prepares batches in the training process.
        pin_memory: whether batches are for a GPU.
    """

    def __init__(
        self,
        make: Mapping[str, MakeBatch],
        batches: MixedBatchSampler,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        super().__init__(
            _Batches(make),
            sampler=batches,
            **loader_options(num_workers, pin_memory),
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        yield from super().__iter__()


def loader_options(num_workers: int, pin_memory: bool) -> dict[str, Any]:
    """Return the options of a DataLoader whose data set makes whole batches."""
    return {
        "batch_size": None,
        "collate_fn": dict,  # the batch as it is
        "num_workers": num_workers,
        "pin_memory": pin_memory,
        "persistent_workers": num_workers > 0,
        "worker_init_fn": _ignore_sigterm,
    }


def _ignore_sigterm(worker: int) -> None:
    """Ignore SIGTERM, which the whole process group receives: the trainer needs its workers until it has stopped."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@atexit.register  # so it runs before multiprocessing's own exit, which sends SIGTERM to its processes and waits
def _end_workers() -> None:
    """Kill the workers of a loader that an error keeps alive."""
    workers = multiprocessing.active_children()
    if workers:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler reports their end as a failure
    for worker in workers:
        worker.kill()
