"""Orders that most runs do not need: of very many rows, of groups of rows, and of the batches of several sets."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

_ROUNDS = 6
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


def mixed(counts: Sequence[tuple[int, int]], sampling: str, seed: int) -> NDArray[np.integer]:
    """Return the place of the set of each batch.

    Args:
        counts: the number of batches of each set, for one rank and for the present ranks, which may be one less: then
            the rows of the last batch join the one before.
        sampling: `proportional`: all batches of all sets, in random order. `round_robin`: one batch of each set in
            turn, until the set with the fewest batches ends. `concatenated`: one set after the other.
        seed: seed of the order.
    """
    of_one_rank = [of_one for of_one, _ in counts]
    if sampling == "round_robin":
        drawn = np.tile(np.arange(len(counts)), min(of_one_rank))
    else:
        drawn = np.repeat(np.arange(len(counts)), of_one_rank)
    if sampling == "proportional":
        drawn = drawn[torch.randperm(len(drawn), generator=torch.Generator().manual_seed(seed)).numpy()]
    for place, (_, count) in enumerate(counts):
        if len(of_set := np.flatnonzero(drawn == place)) > count:
            drawn = np.delete(drawn, of_set[-1])
    return drawn
