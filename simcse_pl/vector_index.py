"""Indexes of vectors by inner product: FAISS's where it is installed, our own exact one where it is not."""

import importlib.util
import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from simcse_pl.errors import UserError

if TYPE_CHECKING:  # imported where it is used: it brings an OpenMP of its own, which only retrieval should meet
    import faiss

Array = np.ndarray[Any, np.dtype[Any]]

_SIMILARITIES_AT_ONCE = 1 << 26  # 256 MB of them
_FEWEST_VECTORS_A_LIST = 39  # what FAISS asks k-means to have per centroid


class VectorIndex(Protocol):
    """What all of them have, as FAISS calls it: `d` is the width of a vector, `ntotal` how many there are."""

    d: int

    @property
    def ntotal(self) -> int:
        """How many vectors there are."""

    def add(self, vectors: Array) -> None:
        """Take in vectors [n, d] float32, after those that are there."""

    def search(self, queries: Array, count: int) -> tuple[Array, Array]:
        """The largest inner products of queries [n, d], the largest first, and whose they are: [n, count] each."""


class ExactIndex:
    """What FAISS's IndexFlatIP is, for where FAISS is not installed.

    Args:
        dim: the width of a vector.
    """

    def __init__(self, dim: int) -> None:
        self.d = dim
        self._vectors = np.empty((0, dim), np.float32)

    @property
    def ntotal(self) -> int:
        """How many vectors there are."""
        return len(self._vectors)

    def add(self, vectors: Array) -> None:
        """See VectorIndex."""
        self._vectors = np.concatenate([self._vectors, vectors])

    def search(self, queries: Array, count: int) -> tuple[Array, Array]:
        """See VectorIndex."""
        vectors = torch.from_numpy(self._vectors)
        parts = torch.from_numpy(queries).split(max(1, _SIMILARITIES_AT_ONCE // len(vectors)))
        found = [torch.topk(part @ vectors.T, count) for part in parts]
        similarities, places = torch.cat([own.values for own in found]), torch.cat([own.indices for own in found])
        return similarities.numpy(), places.numpy()

    def reconstruct_n(self, start: int, count: int) -> Array:
        """The vectors from `start` on, so many."""
        return self._vectors[start : start + count]


def has_faiss() -> bool:
    """Whether FAISS is installed."""
    return importlib.util.find_spec("faiss") is not None


def need_faiss() -> None:
    """Refuse what only FAISS can do.

    Raises:
        UserError: it is not installed.
    """
    if not has_faiss():
        raise UserError("an index of kind ivf needs FAISS: pip install faiss-cpu, or take kind exact")


def exact(vectors: Array) -> VectorIndex:
    """An index that compares a query with every vector.

    Args:
        vectors: [n, dim] float32.
    """
    index: VectorIndex = ExactIndex(vectors.shape[1])
    if has_faiss():
        import faiss

        index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


def inverted_file(vectors: Array, lists: int | None = None, probes: int | None = None) -> "faiss.IndexIVFFlat":
    """An index that compares a query with the vectors of the clusters nearest to it.

    Args:
        vectors: [n, dim] float32.
        lists: clusters, found by k-means, no more than there are vectors; the square root of their number where None.
        probes: clusters that are searched for a query; a quarter of them where None.

    Raises:
        UserError: FAISS is not installed.
    """
    need_faiss()
    import faiss

    n, dim = vectors.shape
    if lists is None:
        lists = max(min(math.isqrt(n), n // _FEWEST_VECTORS_A_LIST), 1)
    lists = min(lists, n)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1  # few sentences a list are the caller's choice, and no warning
    index.train(vectors)
    index.add(vectors)
    index.nprobe = min(probes or math.ceil(lists / 4), lists)
    return index


def of_clusters(vectors: Array, centroids: Array, probes: int) -> "faiss.IndexIVFFlat":
    """The inverted file that has these `parts`.

    Args:
        vectors: [n, dim] float32.
        centroids: [lists, dim] float32.
        probes: clusters that are searched for a query, 1 to `lists`.

    Raises:
        UserError: FAISS is not installed.
    """
    need_faiss()
    import faiss

    lists, dim = centroids.shape
    quantizer = faiss.IndexFlatIP(dim)
    quantizer.add(centroids)
    index = faiss.IndexIVFFlat(quantizer, dim, lists, faiss.METRIC_INNER_PRODUCT)
    index.is_trained = True
    index.add(vectors)
    index.nprobe = probes
    return index


def parts(index: Any) -> dict[str, Array]:
    """What an index is made of: its `vectors` [n, dim]; of an inverted file its `centroids` and `probes` [1] too."""
    if not hasattr(index, "nlist"):
        return {"vectors": index.reconstruct_n(0, index.ntotal)}
    index.make_direct_map()  # by which it finds its vectors in their order
    centroids = index.quantizer.reconstruct_n(0, index.nlist)
    return {
        "vectors": index.reconstruct_n(0, index.ntotal),
        "centroids": centroids,
        "probes": np.array([index.nprobe], np.int64),
    }
