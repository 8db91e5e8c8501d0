"""Orders and samples of rows. Of many rows, they are computed place by place, without a list of all rows."""

import logging
import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simcse_pl.data.token_cache import TokenCache
from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)

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
    groups = generator.permutation(groups.max() + 1)[groups]
    order = generator.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
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
