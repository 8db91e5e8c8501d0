"""Quantized vectors: an 8-bit integer per dimension (int8, uint8), or its sign (binary).

With the range [low, high] of a dimension and step = (high - low) / 255, the level of x is floor((x - low) / step),
clipped to 0 to 255. It stands for the middle of its interval, low + (level + 1/2) step, as in FAISS. uint8 stores the
level, int8 the level - 128. binary stores 1 for x > 0 and otherwise 0, with 8 dimensions in a byte; they stand for 1
and -1. The stored values are those of `quantize_embeddings` of sentence-transformers, where binary is named ubinary.
"""

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from simcse_pl.utils.errors import UserError

Array = np.ndarray[Any, np.dtype[Any]]

FLOAT32, INT8, UINT8, BINARY = PRECISIONS = ("float32", "int8", "uint8", "binary")
RANGED = (INT8, UINT8)
_DTYPES = {FLOAT32: np.float32, INT8: np.int8, UINT8: np.uint8, BINARY: np.uint8}
_BLOCK = 4096  # vectors that are converted to float32 at once
_MAX_WEIGHTS = 1 << 16  # sum of a query's integers: its products with levels below 256 are exact in float32


def stored_width(precision: str, dim: int) -> int:
    """Return how many numbers a vector of `dim` dimensions has at a precision; raise UserError if it cannot have it."""
    if precision not in PRECISIONS:
        raise UserError(f"precision={precision}: choose one of {', '.join(PRECISIONS)}")
    if precision == BINARY and dim % 8:
        raise UserError(f"precision=binary packs 8 dimensions into a byte, but there are {dim}: truncate the vectors")
    return dim // 8 if precision == BINARY else dim


@dataclass(frozen=True, eq=False)
class Quantizer:
    """A precision of vectors, and the conversion to and from it.

    Args:
        precision: `float32`, `int8`, `uint8` or `binary`.
        ranges: for int8 and uint8, the lowest and the highest value of each dimension, [2, dim] float32.

    Examples:
        >>> quantizer = Quantizer("uint8", np.load("captions.npy.ranges.npy"))
        >>> vectors = quantizer.dequantize(np.load("captions.npy"))
    """

    precision: str = FLOAT32
    ranges: Array | None = None

    def __post_init__(self) -> None:
        stored_width(self.precision, 0)
        if self.precision in RANGED and self.ranges is None:
            raise UserError(f"precision={self.precision} needs the ranges of the dimensions")

    @classmethod
    def calibrated(cls, precision: str, chunks: Iterable[Array]) -> "Quantizer":
        """Return a quantizer; int8 and uint8 read vectors [n, dim] in chunks, and take their ranges.

        Raises:
            UserError: there are fewer than 2 vectors, or one is not finite.
        """
        if precision not in RANGED:
            return cls(precision)
        found = [(len(chunk), _finite(chunk).min(axis=0), chunk.max(axis=0)) for chunk in chunks]
        if (total := sum(count for count, _, _ in found)) < 2:
            raise UserError(f"precision={precision} takes ranges from at least 2 sentences, not {total}: give more")
        _, lowest, highest = zip(*found, strict=True)
        return cls(precision, np.stack([np.min(lowest, axis=0), np.max(highest, axis=0)]))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of the stored numbers."""
        return np.dtype(_DTYPES[self.precision])

    def quantize(self, vectors: Array) -> Array:
        """Return vectors [n, dim] float32 as stored, [n, width]; raise UserError if one is not finite."""
        if self.precision == FLOAT32:
            return vectors
        stored_width(self.precision, _finite(vectors).shape[1])
        if self.precision == BINARY:
            return np.asarray(np.packbits(vectors > 0, axis=1))
        low, step = self._low_and_step()
        levels = vectors - low  # the only copy in float32
        levels /= np.where(step == 0, np.float32(1), step)
        np.floor(levels, out=levels).clip(0, 255, out=levels)
        levels -= self._offset
        return levels.astype(self.dtype)

    def dequantize(self, codes: Array) -> Array:
        """Return stored vectors [..., width] as float32 [..., dim]."""
        if self.precision == FLOAT32:
            return codes
        if self.precision == BINARY:
            return np.unpackbits(codes, axis=-1).astype(np.float32) * 2 - 1
        low, step = self._low_and_step()
        return np.asarray(low + (codes.astype(np.float32) + np.float32(self._offset + 0.5)) * step)

    def candidates(self, queries: Array, codes: Array, count: int) -> Array:
        """Return the positions of the nearest quantized vectors, [queries, count], the first ones among equals.

        For binary, these have the smallest Hamming distances to the signs of the query. For int8 and uint8, they have
        the highest inner products of levels with the query times the steps, which is rounded to integers. Sums of
        integers do not depend on the order of additions, so equal vectors have equal scores.

        Args:
            queries: [queries, dim] float32.
            codes: [n, width], not of precision float32.
            count: number of positions, at most n.
        """
        if self.precision == BINARY:
            signs = np.packbits(queries > 0, axis=1)
            if importlib.util.find_spec("faiss"):  # about 10 times as fast
                import faiss  # here, because it loads a second OpenMP library

                return np.asarray(faiss.knn_hamming(signs, codes, count)[1])
            distances = (np.bitwise_count(codes ^ own).sum(axis=1, dtype=np.int32) for own in signs)
            return np.stack([_highest(-own, count) for own in distances])
        # FAISS's scalar quantizer would hold a second copy of the vectors, and orders equal scores in another way.
        weights = queries * self._low_and_step()[1]
        sums = np.abs(weights).sum(axis=1, keepdims=True)
        weights = np.rint(weights * ((_MAX_WEIGHTS - weights.shape[1]) / np.where(sums == 0, np.float32(1), sums)))
        blocks = (codes[start : start + _BLOCK] for start in range(0, len(codes), _BLOCK))
        scores = np.concatenate([weights @ block.astype(np.float32).T for block in blocks], axis=1)
        return np.stack([_highest(own, count) for own in scores])

    @property
    def _offset(self) -> int:
        return 128 if self.precision == INT8 else 0

    def _low_and_step(self) -> tuple[Array, Array]:
        assert self.ranges is not None
        low, high = self.ranges
        return low, (high - low) / 255


def _finite(vectors: Array) -> Array:
    if not np.isfinite(vectors).all():
        raise UserError("a vector is not finite, so it cannot be quantized")
    return vectors


def _highest(scores: Array, count: int) -> Array:
    """Return the positions of the highest scores [n], the first ones among equals."""
    places = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    return places[np.argsort(-scores[places], kind="stable")][:count]
