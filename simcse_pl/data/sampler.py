"""Which rows make a contrastive batch, this rank's share of each, and where a resumed run goes on."""

import atexit
import multiprocessing.util
import signal
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from simcse_pl.data.collators import LabeledRow, Sentence
from simcse_pl.data.dataset import Key, TrainingDataset
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.errors import UserError


class ContrastiveBatchSampler(Sampler[list[Key]]):
    """This rank's share of every contrastive batch of an epoch, in an order that the seed and the epoch shuffle.

    The batches are the same with any number of ranks, which take contiguous shares in rank order, as even as can be.
    Only the last batch of an epoch may be smaller; where it would have fewer rows than there are ranks, these rows
    join the batch before it.

    Args:
        rows: how many there are.
        batch_size: rows of a batch, over all ranks together.
        ranks, rank: how many share, and which of them this is.
        seed: of the order.

    Raises:
        UserError: fewer rows, or a smaller batch, than ranks.

    Attributes:
        epoch: the next that is drawn; Lightning sets it.
    """

    def __init__(self, rows: int, batch_size: int, ranks: int = 1, rank: int = 0, seed: int = 42) -> None:
        for what, there_are in (("data.batch_size", batch_size), ("the number of rows to train on", rows)):
            if there_are < ranks:
                raise UserError(f"{what} is {there_are}, which {ranks} devices cannot share: each needs a row")
        self.rows, self.batch_size, self.ranks, self.rank, self.seed = rows, batch_size, ranks, rank, seed
        self.epoch = 0
        self._resumed = (0, 0)

    def __len__(self) -> int:
        return len(self._starts())

    def _starts(self) -> list[int]:
        starts = list(range(0, self.rows, self.batch_size))
        return starts[:-1] if self.rows - starts[-1] < self.ranks else starts

    def set_epoch(self, epoch: int) -> None:
        """Draw this epoch next."""
        self.epoch = epoch

    def resume(self, epoch: int, batch: int) -> None:
        """Begin one epoch at a later batch; all others begin at their first."""
        self._resumed = (epoch, batch)

    @property
    def first(self) -> int:
        """The batch that this epoch begins at."""
        epoch, batch = self._resumed
        return batch if self.epoch == epoch else 0

    def rows_of(self, epoch: int, batch: int) -> list[int]:
        """The rows of a whole batch, of all ranks."""
        start, end = self._bounds()[batch]
        return self._order(epoch)[start:end].tolist()

    def _order(self, epoch: int) -> Tensor:
        return torch.randperm(self.rows, generator=torch.Generator().manual_seed(self.seed + epoch))

    def _bounds(self) -> list[tuple[int, int]]:
        starts = self._starts()
        return list(zip(starts, [*starts[1:], self.rows], strict=True))

    def __iter__(self) -> Iterator[list[Key]]:
        epoch, order = self.epoch, self._order(self.epoch)
        for start, end in self._bounds()[self.first :]:
            own, own_end = (start + (end - start) * part // self.ranks for part in (self.rank, self.rank + 1))
            yield [(epoch, row) for row in order[own:own_end].tolist()]


class ContrastiveDataLoader(DataLoader[list[tuple[Sentence, ...]] | list[LabeledRow]]):
    """A loader of contrastive batches.

    An epoch begins when its first batch is asked for: Lightning makes the first iterator before it says which
    epoch a resumed run is in, and workers draw keys as soon as there is an iterator.

    Args:
        rows: what is trained on.
        batches: keys of `rows`.
        collate: from the rows of a batch to its tensors.
        num_workers: processes that prepare batches; 0 does it in the training process.
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
            batch_size=None,  # the sampler's keys are those of a whole batch
            sampler=batches,
            collate_fn=collate,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            worker_init_fn=_leave_signals_to_the_trainer,
        )

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        yield from super().__iter__()


def _leave_signals_to_the_trainer(worker: int) -> None:
    """A whole process group is told to stop, and the trainer needs its workers until it has."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@atexit.register  # and so before the end of `multiprocessing`, which asks its processes to end by SIGTERM, and waits
def _end_workers() -> None:
    """End those that are left where an error keeps a loader alive."""
    workers = multiprocessing.active_children()
    if workers:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler takes their end for a failure
    for worker in workers:
        worker.kill()
