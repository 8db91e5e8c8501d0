"""Search sentences by the cosine similarity of their vectors with a query's."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simcse_pl.inference.index_files import read_index, write_index
from simcse_pl.models.protocols import Encode
from simcse_pl.results.neighbourhood import Neighbour
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import unit_vectors

_SENTENCES_AT_A_TIME = 16384
_NUMBERS_AT_A_TIME = 1 << 26  # 256 MB in float32
_SAME = 0.05  # distance of a sentence's two vectors, in float32 and in half precision: a cosine above 0.998
_DIGITS = 6  # of a similarity: float32 rounds the seventh


class SentenceIndex:
    """Distinct sentences and their normalized vectors.

    Exact search is a product of matrices in torch, with or without FAISS, so that ties have one order.

    Args:
        encode: returns vectors [n, dim] of sentences; the queries are encoded with it.
        sentences: distinct.
        vectors: [n, dim] float32 on the CPU, of length 1; row i is the vector of sentence i.
        cells: where given, FAISS clusters the vectors into `cells[0]` cells, and a query is compared with the vectors
            of the nearest `cells[1]` cells only, which is faster and may miss neighbours.

    Examples:
        >>> index = SentenceIndex.build(encode, captions)
        >>> index.search(["A man riding a small boat in a harbor."], count=3)
        >>> index.save("captions")
    """

    def __init__(
        self, encode: Encode, sentences: Sequence[str], vectors: Tensor, cells: tuple[int, int] | None = None
    ) -> None:
        self.encode = encode
        self.sentences = list(sentences)
        self.vectors = vectors
        self.cells = cells
        self._faiss: Any = None  # made by the first search: FAISS brings an OpenMP of its own

    def __len__(self) -> int:
        return len(self.sentences)

    @classmethod
    def build(cls, encode: Encode, sentences: Sequence[str], cells: tuple[int, int] | None = None) -> "SentenceIndex":
        """Encode every distinct sentence once.

        Args:
            encode: is called with at most 16,384 sentences at a time.
            sentences: the corpus; repetitions are ignored.
            cells: see the class.

        Raises:
            UserError: there are no sentences, or a vector is not finite.
        """
        distinct = list(dict.fromkeys(_texts(sentences)))
        if not distinct:
            raise UserError("retrieval: the corpus has no sentences")
        return cls(encode, distinct, _unit_vectors(encode, distinct), cells)

    def add(self, sentences: Sequence[str]) -> int:
        """Encode and append the sentences that the index does not have.

        Returns:
            The number of new sentences.

        Raises:
            UserError: a vector is not finite, or does not have the width of the index.
        """
        known = set(self.sentences)
        new = [sentence for sentence in dict.fromkeys(_texts(sentences)) if sentence not in known]
        if new:
            self.vectors = torch.cat([self.vectors, self._encoded(new)])
            self.sentences += new
            self._faiss = None
        return len(new)

    def search(
        self,
        queries: Sequence[str],
        count: int = 3,
        threshold: float | None = None,
        leave_out_equal: bool = False,
    ) -> list[list[Neighbour]]:
        """Return the nearest sentences of every query, ordered by similarity and then by their place in the corpus.

        A zero vector has similarity 0 with everything.

        Args:
            queries: a list, which may be empty.
            count: neighbours of a query at most.
            threshold: the lowest similarity to return; None for any.
            leave_out_equal: omit a sentence that equals the query, as Table 8 does.

        Raises:
            UserError: `queries` is a string, `count` is below 1, `threshold` is not in [-1, 1], or the encoder's
                vectors do not have the width of the index.
        """
        if count < 1:
            raise UserError(f"retrieval count={count}: it must be at least 1")
        if threshold is not None and not -1 <= threshold <= 1:
            raise UserError(f"threshold={threshold}: it must be from -1 to 1, as cosines are")
        if not _texts(queries):
            return []
        vectors = self._encoded(list(queries))
        most = min(count + leave_out_equal, len(self))
        candidates = self._in_cells(vectors, most) if self.cells else self._nearest(vectors, most)
        return [
            [
                neighbour
                for neighbour in self._ordered(vector, places)
                if (threshold is None or neighbour.similarity >= threshold)
                and not (leave_out_equal and neighbour.sentence == query)
            ][:count]
            for query, vector, places in zip(queries, vectors, candidates, strict=True)
        ]

    def _nearest(self, queries: Tensor, count: int) -> Iterator[Tensor]:
        """Yield the places of a query's nearest sentences, with all that tie with the last of them."""
        for part in queries.split(max(1, _NUMBERS_AT_A_TIME // len(self))):
            similarities = part @ self.vectors.T
            least = similarities.topk(count).values[:, -1:] - 2 * 10**-_DIGITS
            yield from (near.nonzero()[:, 0] for near in similarities >= least)

    def _in_cells(self, queries: Tensor, count: int) -> Iterator[Tensor]:
        if self._faiss is None:
            import faiss

            assert self.cells
            (n, dim), (cells, searched) = self.vectors.shape, self.cells
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, min(cells, n), faiss.METRIC_INNER_PRODUCT)
            index.cp.min_points_per_centroid = 1  # or FAISS warns of small cells
            index.train(self.vectors.numpy())
            index.add(self.vectors.numpy())
            index.nprobe = searched
            self._faiss = index
        for places in torch.from_numpy(self._faiss.search(queries.numpy(), count)[1]):
            yield places[places >= 0].sort().values  # -1: the cells hold fewer

    def _ordered(self, query: Tensor, places: Tensor) -> Iterator[Neighbour]:
        """Yield the sentences at ascending places, the most similar first.

        Float64 makes ties of equal vectors, which a product of matrices in float32 may round differently.
        """
        parts = places.split(max(1, _NUMBERS_AT_A_TIME // len(query)))
        products = torch.cat([(self.vectors[part].double() * query.double()).sum(dim=1) for part in parts])
        similarities = products.round(decimals=_DIGITS).clamp(-1, 1)
        order = similarities.argsort(descending=True, stable=True)
        for place, similarity in zip(places[order].tolist(), similarities[order].tolist(), strict=True):
            yield Neighbour(self.sentences[place], similarity)

    def _encoded(self, sentences: list[str]) -> Tensor:
        vectors = _unit_vectors(self.encode, sentences)
        if vectors.shape[1] != self.vectors.shape[1]:
            raise UserError(
                f"the index holds vectors of {self.vectors.shape[1]} dimensions and the encoder gives "
                f"{vectors.shape[1]}: use the encoder that made it"
            )
        return vectors

    def save(self, folder: str | Path, settings: Mapping[str, Any] | None = None) -> None:
        """Write the sentences, the vectors and the encoder's settings; `cells` are not saved.

        Args:
            folder: created if it does not exist; an index in it is replaced.
            settings: of the encoder, which `load` compares.
        """
        write_index(folder, self.sentences, self.vectors, settings or {})

    @classmethod
    def load(cls, folder: str | Path, encode: Encode, settings: Mapping[str, Any] | None = None) -> "SentenceIndex":
        """Read what `save` wrote.

        Args:
            folder: as given to `save`.
            encode: the encoder that made the index; it encodes the first and the longest sentence again.
            settings: of this encoder; the name that it was loaded by may differ.

        Raises:
            UserError: a file is missing or damaged, or the encoder or its settings differ from those of the index.
        """
        sentences, vectors, made_with = read_index(folder)
        settings = settings or made_with
        for name, value in made_with.items():
            if name != "encoder" and settings.get(name) != value:
                raise UserError(
                    f"{folder} was made with {name}={value}, and the encoder has {name}={settings.get(name)}: "
                    "load the encoder with the same settings, or build the index again"
                )
        index = cls(encode, sentences, vectors)
        places = [0, max(range(len(sentences)), key=lambda place: len(sentences[place]))]
        again = index._encoded([sentences[place] for place in places])
        for place, distance in zip(places, torch.linalg.vector_norm(again - vectors[places], dim=1), strict=True):
            if distance > _SAME:
                raise UserError(
                    f"{folder} was made with another encoder or other settings: the vector of "
                    f"{sentences[place][:40]!r} differs; build the index again"
                )
        return index


def _texts(sentences: Sequence[str]) -> Sequence[str]:
    if isinstance(sentences, str):
        raise UserError("retrieval takes a list of sentences, and was given one string")
    return sentences


def _unit_vectors(encode: Encode, sentences: list[str]) -> Tensor:
    """Return [n, dim] float32 on the CPU, filled part by part so that the vectors are in memory once."""
    vectors = torch.empty(0)
    for start in range(0, len(sentences), _SENTENCES_AT_A_TIME):
        part = unit_vectors(encode(sentences[start : start + _SENTENCES_AT_A_TIME]).float().cpu())
        if start == 0:
            vectors = torch.empty(len(sentences), part.shape[1])
        if not part.isfinite().all():
            odd = int((~part.isfinite()).any(dim=1).nonzero()[0, 0])
            raise UserError(f"retrieval: the vector of {sentences[start + odd]!r} is not finite")
        vectors[start : start + len(part)] = part
    return vectors
