"""Which rows are trained on, and the orders of groups of rows and of the batches of several sets."""

import random
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from simcse_pl.data.token_cache import TokenCache
from simcse_pl.utils.errors import UserError


def _sample(count: int, number: int, seed: int | str) -> NDArray[np.int64]:
    """Return `number` of the numbers below `count`, chosen at random, in ascending order."""
    return np.array(sorted(random.Random(seed).sample(range(count), number)), dtype=np.int64)


def choose(
    cache: TokenCache, documents: bool, hold_out: float, limit: int | None, seed: int
) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """Return the rows to train on and the held-out rows.

    Rows are held out first; `limit` applies to the other rows. With `documents`, only rows that have a next sentence in
    their document are trained on.
    """
    count = len(cache)
    rows: NDArray[np.integer] = np.arange(count, dtype=np.uint32)
    held_out = np.empty(0, dtype=np.int64)
    if documents:
        from simcse_pl.data.documents import with_next_sentence

        rows = with_next_sentence(cache)
    elif hold_out:
        number = round(hold_out if hold_out >= 1 else hold_out * count)
        if not 2 <= number < count:  # the contrastive loss of one row is 0
            raise UserError(f"data.hold_out={hold_out:g}: {number} of {count} rows; hold out two or more, not all")
        held_out = _sample(count, number, f"{seed}-hold_out")
        rows = np.delete(rows, held_out)
    if limit is None:
        return rows, held_out
    if limit > len(rows):
        raise UserError(f"data.limit={limit}: there are {len(rows)} rows to choose from")
    return rows[_sample(len(rows), limit, seed)], held_out


def grouped(groups: NDArray[np.integer], size: int, seed: int) -> NDArray[np.int64]:
    """Return a random order of rows in which the `size` rows of a batch have the same group as far as possible.

    Rows that do not fill a batch of their group share batches with rows of other groups. Batches are in random order,
    but a batch with fewer rows comes last.
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
    """Return the set of each batch by its position in `counts`.

    Args:
        counts: the number of batches of each set, for one rank and for the present ranks, which may be one less: then
            the rows of the last batch join the one before.
        sampling: `proportional`: all batches of all sets, in random order. `round_robin`: one batch of each set in
            turn, until the set with the fewest batches ends. `concatenated`: one set after the other.
        seed: seed of the order.
    """
    counts_of_one = [count for count, _ in counts]
    if sampling == "round_robin":
        drawn = np.tile(np.arange(len(counts)), min(counts_of_one))
    else:
        drawn = np.repeat(np.arange(len(counts)), counts_of_one)
    if sampling == "proportional":
        drawn = drawn[torch.randperm(len(drawn), generator=torch.Generator().manual_seed(seed)).numpy()]
    for position, (_, count) in enumerate(counts):
        if len(positions_of_set := np.flatnonzero(drawn == position)) > count:
            drawn = np.delete(drawn, positions_of_set[-1])
    return drawn
