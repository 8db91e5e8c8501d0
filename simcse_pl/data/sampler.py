"""The rows of each contrastive batch, this rank's part of them, and where a resumed run continues."""

import atexit
import multiprocessing.util
import signal
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from simcse_pl.data.collators import LabeledRow, Sentence
from simcse_pl.data.dataset import RowKey, TrainingDataset
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.errors import UserError


class ContrastiveBatchSampler(Sampler[list[RowKey]]):
    """Yields this rank's part of each contrastive batch of an epoch, shuffled by the seed and the epoch.

    The batches do not depend on the number of ranks. Each rank takes a contiguous part of a batch, in rank order; the
    sizes differ by one at most. Only the last batch of an epoch may be smaller. If it has fewer rows than there are
    ranks, its rows join the batch before it.

    Args:
        rows: the number of rows.
        batch_size: the rows of a batch, over all ranks together.
        ranks, rank: the number of ranks, and which of them this is.
        seed: of the order.

    Raises:
        UserError: there are more ranks than rows, or than rows in a batch.

    Attributes:
        epoch: the epoch that is drawn next; Lightning sets it.
    """

    def __init__(self, rows: int, batch_size: int, ranks: int = 1, rank: int = 0, seed: int = 42) -> None:
        for what, count in (("data.batch_size", batch_size), ("the number of rows to train on", rows)):
            if count < ranks:
                raise UserError(f"{what} is {count}: it must be at least {ranks}, one row for each device")
        self.rows, self.batch_size, self.ranks, self.rank, self.seed = rows, batch_size, ranks, rank, seed
        self.epoch = 0
        self._resumed = (0, 0)

    def __len__(self) -> int:
        return len(self._starts())

    def _starts(self) -> list[int]:
        starts = list(range(0, self.rows, self.batch_size))
        return starts[:-1] if self.rows - starts[-1] < self.ranks else starts

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that is drawn next."""
        self.epoch = epoch

    def resume(self, epoch: int, batch: int) -> None:
        """Start one epoch at a later batch; all others start at their first."""
        self._resumed = (epoch, batch)

    @property
    def first(self) -> int:
        """The batch at which this epoch starts."""
        epoch, batch = self._resumed
        return batch if self.epoch == epoch else 0

    def rows_of(self, epoch: int, batch: int) -> list[int]:
        """Return the rows of a batch, of all ranks together."""
        start, end = self._bounds()[batch]
        return self._order(epoch)[start:end].tolist()

    def _order(self, epoch: int) -> Tensor:
        return torch.randperm(self.rows, generator=torch.Generator().manual_seed(self.seed + epoch))

    def _bounds(self) -> list[tuple[int, int]]:
        starts = self._starts()
        return list(zip(starts, [*starts[1:], self.rows], strict=True))

    def __iter__(self) -> Iterator[list[RowKey]]:
        epoch, order = self.epoch, self._order(self.epoch)
        for start, end in self._bounds()[self.first :]:
            own, own_end = (start + (end - start) * part // self.ranks for part in (self.rank, self.rank + 1))
            yield [(epoch, row) for row in order[own:own_end].tolist()]


class ContrastiveDataLoader(DataLoader[list[tuple[Sentence, ...]] | list[LabeledRow]]):
    """A DataLoader of contrastive batches.

    An epoch starts at its first batch, not with its iterator. Lightning makes the first iterator before it sets the
    epoch of a resumed run, and workers draw keys as soon as an iterator exists.

    Args:
        rows: the training dataset.
        batches: the keys of each batch.
        collate: from the rows of a batch to its tensors.
        num_workers: the number of worker processes; 0 prepares batches in the training process.
    """

    def __init__(
        self,
        rows: TrainingDataset,
        batches: ContrastiveBatchSampler,
        collate: Callable[[list[Any]], Batch],
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            rows,
            batch_size=None,  # the sampler yields the keys of a whole batch
            sampler=batches,
            collate_fn=collate,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            worker_init_fn=_ignore_sigterm,
        )

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        yield from super().__iter__()


def _ignore_sigterm(worker: int) -> None:
    """Ignore the signal that a whole process group gets: the trainer needs its workers until it has stopped."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@atexit.register  # so it runs before multiprocessing's own exit, which sends SIGTERM to its processes and waits
def _end_workers() -> None:
    """Kill the workers of a loader that an error keeps alive."""
    workers = multiprocessing.active_children()
    if workers:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler reports their end as a failure
    for worker in workers:
        worker.kill()
