"""The rows of each contrastive batch, this rank's part of them, and where a run resumes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from simcse_pl.utils.errors import UserError

RowKey = tuple[int, int]  # the epoch, and the position among the chosen rows
BatchKey = tuple[str, list[RowKey], tuple[int, ...]]  # the data set, this rank's rows, and the number of each rank's
Sampling = Literal["proportional", "round_robin", "concatenated"]
Rows = Sequence[int] | NDArray[np.integer]  # their positions


def seed_of_epoch(seed: int, epoch: int) -> int:
    """Return a seed that other seeds below a million have in no epoch, so that their runs are independent."""
    return seed + 1_000_003 * epoch


class ContrastiveBatches:
    """This rank's part of each contrastive batch of a data set, shuffled by the seed and the epoch.

    The batches do not depend on the number of ranks. Each rank takes a contiguous part of a batch, in rank order; the
    sizes of the parts differ by at most one. Only the last batch of an epoch may be smaller. If it has one row, or
    fewer rows than there are ranks, its rows join the batch before it.

    Args:
        rows, batch_size: the number of rows, and that of a batch, over all ranks together.
        ranks, rank: the number of ranks, and the rank of this process.
        groups: [rows], the group of each row; batches are drawn from groups (see orders.grouped). None for one group.
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
        fewest = max(ranks, min(batch_size, 2))  # one row has no negatives
        joins = self.batches_of_one_rank > 1 and (rows - 1) % batch_size + 1 < fewest
        self.batches = self.batches_of_one_rank - joins

    def draw(self, epoch: int, start: int = 0) -> Iterator[tuple[list[int], tuple[int, ...]]]:
        """Yield this rank's rows of each batch of an epoch from `start` on, and the number of rows of each rank."""
        seed = seed_of_epoch(self.seed, epoch)
        if self.groups is None:
            order = torch.randperm(self.rows, generator=torch.Generator().manual_seed(seed))
        else:
            from simcse_pl.data.orders import grouped

            order = torch.from_numpy(grouped(self.groups, self.batch_size, seed))
        for batch in range(start, self.batches):
            first = batch * self.batch_size
            size = (self.rows if batch == self.batches - 1 else first + self.batch_size) - first
            ends = [size * rank // self.ranks for rank in range(self.ranks + 1)]
            counts = tuple(end - begin for begin, end in pairwise(ends))
            yield order[first + ends[self.rank] : first + ends[self.rank + 1]].tolist(), counts


class MixedBatchSampler(Sampler[BatchKey]):
    """Yields the batches of an epoch, each of one data set. All ranks draw the same sets in the same order.

    Args:
        sets: the batches of each data set.
        sampling: the order of several sets (see orders.mixed).
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
        return len(self._sets_drawn())

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that is drawn next."""
        self.epoch = epoch

    def _sets_drawn(self) -> NDArray[np.integer]:
        """Return the position in `sets` of the set of each batch."""
        sets = list(self.sets.values())
        if len(sets) == 1:
            return np.zeros(sets[0].batches, dtype=np.int64)
        from simcse_pl.data.orders import mixed

        counts = [(batches.batches_of_one_rank, batches.batches) for batches in sets]
        return mixed(counts, self.sampling, seed_of_epoch(self.seed, self.epoch))

    def __iter__(self) -> Iterator[BatchKey]:
        epoch, names = self.epoch, list(self.sets)
        sets = self._sets_drawn()
        start = self.start[1] if epoch == self.start[0] else 0
        done = np.bincount(sets[:start], minlength=len(names))
        batches = [sampler.draw(epoch, int(first)) for sampler, first in zip(self.sets.values(), done, strict=True)]
        for position in sets[start:]:
            rows, counts = next(batches[position])
            yield names[position], [(epoch, row) for row in rows], counts


@dataclass
class Batches(Dataset[dict[str, Any]]):
    """Batches by their keys, made of the rows of a data set."""

    make: Mapping[str, Callable[[Sequence[RowKey]], dict[str, Any]]]  # for each data set

    def __getitem__(self, key: BatchKey) -> dict[str, Any]:
        name, keys, counts = key
        return self.make[name](keys) | {"counts": counts}


class ContrastiveDataLoader(DataLoader[dict[str, Any]]):
    """A DataLoader whose iterator reads from the sampler only when its first batch is requested.

    Lightning creates the first iterator before it sets the epoch of a resumed run, and workers would draw keys as soon
    as the iterator exists.
    """

    def __iter__(self) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        yield from super().__iter__()
