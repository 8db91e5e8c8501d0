"""Orders and choices of rows. Of many rows, they are computed place by place, without a list of all rows."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_LISTED = 2**24  # up to so many rows, orders are those of torch.randperm and random.sample, as in earlier versions
_ROUNDS = 6
_AT_ONCE = 2**20  # rows
_FACTORS = np.array([0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53], dtype=np.uint64)  # murmur3's, which mix 64 bits
_SHIFT = np.uint64(33)


class RowOrder:
    """A random order of rows.

    Args:
        rows: the number of rows.
        seed: seed of the order.
    """

    def __init__(self, rows: int, seed: int) -> None:
        self._rows, self._seed = rows, seed
        self._listed = None
        if rows <= _LISTED:
            self._listed = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))

    def __getitem__(self, places: slice) -> list[int]:
        """Return the rows at consecutive places."""
        if self._listed is not None:
            return list(self._listed[places].tolist())
        return list(permuted(np.arange(places.start, places.stop), self._rows, self._seed).tolist())


def permuted(places: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """Return the rows at some places of a random order of `count` rows.

    A Feistel network permutes the numbers below a power of 4. A number that is no row is permuted again, until it is
    one (cycle walking; Black and Rogaway, Ciphers with arbitrary finite domains, 2002).
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    bits, low = np.uint64(half), np.uint64(2**half - 1)
    keys = np.random.SeedSequence(seed).generate_state(_ROUNDS, np.uint64)
    rows = places.astype(np.uint64)
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


def sample(count: int, number: int, seed: int | str) -> NDArray[np.int64]:
    """Return `number` of the numbers below `count`, chosen at random, in ascending order."""
    generator = random.Random(seed)
    if count <= _LISTED:
        return np.array(sorted(generator.sample(range(count), number)), dtype=np.int64)
    bits, starts = generator.getrandbits(64), range(0, number, _AT_ONCE)
    parts = [permuted(np.arange(start, min(start + _AT_ONCE, number)), count, bits) for start in starts]
    return np.sort(np.concatenate(parts))


class AllBut(Sequence[int]):
    """The numbers below `count` without some of them. It holds only those that are left out.

    Args:
        count: the number of numbers.
        left_out: those that are left out, in ascending order.
    """

    def __init__(self, count: int, left_out: NDArray[np.int64]) -> None:
        self._length = count - len(left_out)
        self._before = left_out - np.arange(len(left_out))  # how many numbers stay before each of them

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        """Return the number at a place, or an array of those of a slice or an array of places."""
        if isinstance(place, slice):
            place = np.arange(*place.indices(self._length))
        elif not isinstance(place, np.ndarray):
            place = range(self._length)[place]
        return place + np.searchsorted(self._before, place, side="right")

    def __iter__(self) -> Iterator[int]:
        return iter(self[:].tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)
