"""Which rows are trained on, the rows of each contrastive batch, this rank's part of them, and where a run resumes."""

import copy
import logging
import multiprocessing
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from simcse_pl.data.token_cache import TokenCache
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.private import at_exit

log = logging.getLogger(__name__)

RowKey = tuple[int, int]  # the epoch, and the position among the chosen rows
BatchKey = tuple[str, list[RowKey], tuple[int, ...]]  # the data set, this rank's rows, and the number of each rank's
MakeBatch = Callable[[Sequence[RowKey]], dict[str, Any]]
Sampling = Literal["proportional", "round_robin", "concatenated"]
Rows = Sequence[int] | NDArray[np.integer]  # their positions

LISTED = 2**24  # up to so many rows, orders are those of torch.randperm and random.sample, as in earlier versions
_ROUNDS = 6
_AT_ONCE = 2**20  # rows
_FACTORS = np.array([0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53], dtype=np.uint64)  # murmur3's, which mix 64 bits
_SHIFT = np.uint64(33)


def permuted(start: int, end: int, count: int, seed: int) -> NDArray[np.int64]:
    """Return the rows from one place to another in a random order of `count` rows.

    A Feistel network permutes the numbers below a power of 4. A number that is no row is permuted again, until it is
    one (cycle walking; Black and Rogaway, Ciphers with arbitrary finite domains, 2002).
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    bits, low = np.uint64(half), np.uint64(2**half - 1)
    keys = np.random.SeedSequence(seed).generate_state(_ROUNDS, np.uint64)
    rows = np.arange(start, end, dtype=np.uint64)
    outside = np.arange(len(rows))
    while len(outside):
        left, right = rows[outside] >> bits, rows[outside] & low
        for key in keys:
            mixed = right ^ key
            for factor in _FACTORS:
                mixed = (mixed ^ (mixed >> _SHIFT)) * factor
            left, right = right, left ^ ((mixed ^ (mixed >> _SHIFT)) & low)
        rows[outside] = left << bits | right
        outside = outside[rows[outside] >= count]
    return rows.astype(np.int64)


def grouped(groups: NDArray[np.integer], size: int, seed: int) -> NDArray[np.int64]:
    """Return a random order of rows in which each `size` rows, a batch, are of one group as far as possible.

    The rows of a group that do not fill a batch follow those of another group. Batches are in random order, except that
    a last one with fewer rows is the last.
    """
    generator = np.random.default_rng(seed)
    groups = generator.permutation(groups.max() + 1)[groups]  # numbered at random
    order = generator.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]  # by group, and at random within one
    counts = np.bincount(groups)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    in_whole_batch = np.arange(len(order)) - starts < np.repeat(counts // size * size, counts)
    order = np.concatenate([order[in_whole_batch], order[~in_whole_batch]])
    end = len(order) // size * size
    batches = generator.permutation(order[:end].reshape(-1, size))
    return np.concatenate([batches.flatten(), order[end:]])


def sample(count: int, number: int, seed: int | str) -> NDArray[np.int64]:
    """Return `number` of the numbers below `count`, chosen at random, in ascending order."""
    generator = random.Random(seed)
    if count <= LISTED:
        return np.array(sorted(generator.sample(range(count), number)), dtype=np.int64)
    bits, starts = generator.getrandbits(64), range(0, number, _AT_ONCE)
    parts = [permuted(start, min(start + _AT_ONCE, number), count, bits) for start in starts]
    return np.sort(np.concatenate(parts))


def choose(
    cache: TokenCache, documents: bool, hold_out: float, limit: int | None, seed: int
) -> tuple[Rows, NDArray[np.int64]]:
    """Return the rows to train on, and those that are held out, which are chosen before `limit`.

    With `documents`, only rows that have a next sentence in their document are trained on.
    """
    count, held_out = len(cache), np.empty(0, dtype=np.int64)
    left_out = held_out
    if documents:
        left_out = cache.last_of_documents()
        if cache.name(0) == cache.name(count - 1):
            log.warning("train: the file has no blank lines between documents, so all its lines are one document")
        log.info("train: %d of %d sentences are left out, because no sentence follows them", len(left_out), count)
    elif hold_out:
        number = round(hold_out if hold_out >= 1 else hold_out * count)
        if not 1 <= number < count:
            raise UserError(f"data.hold_out={hold_out:g}: {number} of {count} rows; hold out some, not all")
        left_out = held_out = sample(count, number, f"{seed}-hold_out")
    rows: Rows = np.delete(np.arange(count, dtype=np.uint32), left_out) if len(left_out) else range(count)
    if limit is None:
        return rows, held_out
    if limit > len(rows):
        raise UserError(f"data.limit={limit}: there are {len(rows)} rows to choose from")
    places = sample(len(rows), limit, seed)
    return rows[places] if isinstance(rows, np.ndarray) else places, held_out


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
        groups: [rows], the group of each row, of which batches are drawn (see `grouped`); None for one group.

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
        batches = [of_set.draw(epoch, int(first)) for of_set, first in zip(self.sets.values(), done, strict=True)]
        for place in sets[start:]:
            rows, counts = next(batches[place])
            yield names[place], [(epoch, row) for row in rows], counts


@dataclass
class Batches(Dataset[dict[str, Any]]):
    """Batches by their keys, made of the rows of a data set."""

    make: Mapping[str, MakeBatch]  # from the rows of a batch to the batch, for each data set

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


def loader_options(num_workers: int, pin_memory: bool) -> dict[str, Any]:
    """Return the options of a DataLoader whose data set makes whole batches."""
    vars(context := copy.copy(multiprocessing.get_context()))["Process"] = _Worker
    return {
        "batch_size": None,
        "collate_fn": dict,  # the batch as it is
        "num_workers": num_workers,
        "pin_memory": pin_memory,
        "persistent_workers": num_workers > 0,
        "worker_init_fn": _ignore_sigterm,
        "multiprocessing_context": context if num_workers else None,
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
