"""An index of sentences, searched for those nearest to a query by cosine similarity."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from simcse_pl.directions import directions
from simcse_pl.errors import UserError
from simcse_pl.evaluation import Encode
from simcse_pl.index_files import read_index, write_index
from simcse_pl.vector_index import VectorIndex, exact, inverted_file, need_faiss

KINDS = ("exact", "ivf")
_SENTENCES_AT_A_TIME = 16384
_SAME = 0.999  # cosine of a sentence's vector with itself, with room for half precision
_DIGITS = 6  # of the similarities that put neighbours in order: further ones are rounding


@dataclass(frozen=True)
class Neighbour:
    """A sentence of the corpus, and its cosine similarity with the query, in [-1, 1]."""

    sentence: str
    similarity: float

    def __iter__(self) -> Iterator[str | float]:
        return iter((self.sentence, self.similarity))


class SentenceIndex:
    """Distinct sentences and an index of their normalized vectors, in the same order.

    Args:
        encode: sentences to vectors [n, dim]; for queries, the one that made the index.
        sentences: distinct.
        index: by inner product; vector i of it is sentence i's, of length 1.

    Example:
        >>> index = SentenceIndex.build(encode, captions)
        >>> index.search(["A man riding a small boat in a harbor."], count=3)
        >>> index.save("captions")
    """

    def __init__(self, encode: Encode, sentences: Sequence[str], index: VectorIndex) -> None:
        self.encode = encode
        self.sentences = list(sentences)
        self.index = index

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def kind(self) -> str:
        """`exact` or `ivf`."""
        return "ivf" if hasattr(self.index, "nlist") else "exact"

    @classmethod
    def build(
        cls,
        encode: Encode,
        sentences: Sequence[str],
        kind: str = "exact",
        lists: int | None = None,
        probes: int | None = None,
    ) -> "SentenceIndex":
        """Encode every distinct sentence once, and index it. The same vectors give the same index.

        Args:
            encode: sentences to vectors [n, dim], each vector its sentence's alone: it is called with some
                thousands of sentences at a time, and later with the queries.
            sentences: the corpus, with or without repetitions.
            kind: `exact` compares a query with every sentence; `ivf` (an inverted file, for which FAISS must be
                installed) with the sentences of the `probes` clusters nearest to it, which is faster and may miss
                neighbours.
            lists: clusters of `ivf`, found by k-means, no more than there are sentences; the square root of
                the number of sentences where None.
            probes: clusters that `ivf` searches for a query; a quarter of them where None.

        Raises:
            UserError: no sentences, an unknown kind or one that needs FAISS, lists or probes out of range, or vectors
                that are not finite.
        """
        if kind not in KINDS:
            raise UserError(f"retrieval index {kind}: choose one of {', '.join(KINDS)}")
        if kind == "ivf":
            need_faiss()
        for name, value in (("lists", lists), ("probes", probes)):
            if value is not None and value < 1:
                raise UserError(f"retrieval {name}={value}: it must be at least 1")
        distinct = list(dict.fromkeys(_texts(sentences)))
        if not distinct:
            raise UserError("retrieval: the corpus has no sentences")
        vectors = _unit_vectors(encode, distinct).numpy()
        index: VectorIndex = exact(vectors) if kind == "exact" else inverted_file(vectors, lists, probes)
        return cls(encode, distinct, index)

    def add(self, sentences: Sequence[str]) -> int:
        """Encode and index what is not there yet; an inverted file keeps the clusters that it was built with.

        Args:
            sentences: with or without repetitions, and with or without what is there.

        Returns:
            How many were new.

        Raises:
            UserError: as from `build`, or vectors that do not fit the index.
        """
        known = set(self.sentences)
        new = [sentence for sentence in dict.fromkeys(_texts(sentences)) if sentence not in known]
        if new:
            self.index.add(self._fitting(_unit_vectors(self.encode, new)).numpy())
            self.sentences += new
        return len(new)

    def search(
        self,
        queries: Sequence[str],
        count: int = 3,
        threshold: float | None = None,
        leave_out_equal: bool = False,
    ) -> list[list[Neighbour]]:
        """The nearest sentences to every query, the nearest first, equally near ones in the order of the corpus.

        A zero vector has similarity 0 with everything.

        Args:
            queries: any number of sentences, none included.
            count: the most neighbours of a query; fewer where the corpus, or the clusters searched, hold no more.
            threshold: the least similarity that a neighbour has; any where None.
            leave_out_equal: leave out a sentence that is equal to the query, as in Table 8.

        Raises:
            UserError: `queries` is one string, `count` is below 1, `threshold` is no cosine, or the queries' vectors do
                not fit the index.
        """
        if count < 1:
            raise UserError(f"retrieval count={count}: it must be at least 1")
        if threshold is not None and not -1 <= threshold <= 1:
            raise UserError(f"threshold={threshold}: it must be from -1 to 1, as cosines are")
        if not _texts(queries):
            return []
        vectors = self._fitting(_unit_vectors(self.encode, list(queries)))
        most = min(count + leave_out_equal, len(self))
        found = (part.tolist() for part in self.index.search(vectors.numpy(), most))
        return [
            [
                neighbour
                for neighbour in self._neighbours(similarities, places)
                if (threshold is None or neighbour.similarity >= threshold)
                and not (leave_out_equal and neighbour.sentence == query)
            ][:count]
            for query, similarities, places in zip(queries, *found, strict=True)
        ]

    def _neighbours(self, similarities: list[float], places: list[int]) -> list[Neighbour]:
        near = [one for one in zip(similarities, places, strict=True) if one[1] >= 0]  # -1: the clusters hold no more
        near.sort(key=lambda one: (-round(one[0], _DIGITS), one[1]))
        return [Neighbour(self.sentences[place], min(max(similarity, -1.0), 1.0)) for similarity, place in near]

    def _fitting(self, vectors: Tensor) -> Tensor:
        if vectors.shape[1] != self.index.d:
            raise UserError(
                f"the index holds vectors of {self.index.d} dimensions and the encoder gives {vectors.shape[1]}: "
                "use the encoder that made it"
            )
        return vectors

    def save(self, folder: str | Path) -> None:
        """Write everything but the encoder, each file whole before it is moved to its place."""
        write_index(folder, self.sentences, self.index)

    @classmethod
    def load(cls, folder: str | Path, encode: Encode) -> "SentenceIndex":
        """What `save` wrote, without encoding its sentences anew.

        Args:
            folder: as given to `save`.
            encode: the encoder that made the index; its vector of the first sentence is compared.

        Raises:
            UserError: files that are missing, damaged or from different savings, an inverted file where FAISS is not
                installed, or another encoder.
        """
        loaded = cls(encode, *read_index(folder))
        loaded._check_encoder(folder)
        return loaded

    def _check_encoder(self, folder: str | Path) -> None:
        """An index and an encoder that did not make it give neighbours that mean nothing."""
        vector = _unit_vectors(self.encode, self.sentences[:1])
        if vector.shape[1] != self.index.d:
            raise UserError(
                f"{folder} holds vectors of {self.index.d} dimensions and the encoder gives {vector.shape[1]}: "
                "it was made with another encoder"
            )
        similarities, _ = self.index.search(vector.numpy(), 1)
        if vector.any() and float(similarities[0, 0]) < _SAME:
            raise UserError(f"{folder} was made with another encoder: its first sentence has another vector")


def _texts(sentences: Sequence[str]) -> Sequence[str]:
    if isinstance(sentences, str):
        raise UserError("retrieval takes a list of sentences, and was given one string")
    return sentences


def _unit_vectors(encode: Encode, sentences: list[str]) -> Tensor:
    """[n, dim] float32 on the CPU, filled part by part so that the vectors are in memory once."""
    vectors = torch.empty(0)
    for start in range(0, len(sentences), _SENTENCES_AT_A_TIME):
        part = directions(encode(sentences[start : start + _SENTENCES_AT_A_TIME]).float().cpu())
        if start == 0:
            vectors = torch.empty(len(sentences), part.shape[1])
        if not part.isfinite().all():
            odd = int((~part.isfinite()).any(dim=1).nonzero()[0, 0])
            raise UserError(f"retrieval: the vector of {sentences[start + odd]!r} is not finite")
        vectors[start : start + len(part)] = part
    return vectors
