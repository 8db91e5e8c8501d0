"""An index of a corpus's sentences, searched for those nearest to a query by cosine similarity."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from simcse_pl.errors import UserError, one_line
from simcse_pl.evaluation import Encode
from simcse_pl.files import written_whole

if TYPE_CHECKING:  # imported where it is used: it brings an OpenMP of its own, which only retrieval should meet
    import faiss

KINDS = ("exact", "ivf")
INDEX_FILE = "index.faiss"
SENTENCES_FILE = "sentences.json"
SETTINGS_FILE = "retrieval.json"
_SENTENCES_AT_A_TIME = 16384
_FEWEST_SENTENCES_A_LIST = 39  # what FAISS asks k-means to have per centroid
_SAME = 0.999  # cosine of a sentence's vector with itself, with room for half precision


@dataclass(frozen=True)
class Neighbour:
    """A sentence of the corpus, and its cosine similarity with the query, in [-1, 1]."""

    sentence: str
    similarity: float


class SentenceIndex:
    """The distinct sentences of a corpus and a FAISS index of their normalized vectors, in the same order.

    Args:
        encode: sentences to vectors [n, dim]; for queries, the one that made the index.
        sentences: distinct.
        index: by inner product; vector i of it is sentence i's, of length 1.

    Example:
        >>> index = SentenceIndex.build(encode, captions)
        >>> index.search(["A man riding a small boat in a harbor."], count=3)
        >>> index.save("captions")
    """

    def __init__(self, encode: Encode, sentences: Sequence[str], index: "faiss.Index") -> None:
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
            kind: `exact` compares a query with every sentence; `ivf` (an inverted file) with the sentences of
                the `probes` clusters nearest to it, which is faster and may miss neighbours.
            lists: clusters of `ivf`, found by k-means, no more than there are sentences; the square root of
                the number of sentences where None.
            probes: clusters that `ivf` searches for a query; a quarter of them where None.

        Raises:
            UserError: no sentences, an unknown kind, lists or probes out of range, or vectors that are not finite.
        """
        if kind not in KINDS:
            raise UserError(f"retrieval index {kind}: choose one of {', '.join(KINDS)}")
        for name, value in (("lists", lists), ("probes", probes)):
            if value is not None and value < 1:
                raise UserError(f"retrieval {name}={value}: it must be at least 1")
        distinct = list(dict.fromkeys(_texts(sentences)))
        if not distinct:
            raise UserError("retrieval: the corpus has no sentences")
        vectors = _unit_vectors(encode, distinct)
        index = _exact(vectors) if kind == "exact" else _inverted_file(vectors, lists, probes)
        return cls(encode, distinct, index)

    def search(self, queries: Sequence[str], count: int = 3) -> list[list[Neighbour]]:
        """The nearest sentences to every query, the nearest first.

        A sentence equal to the query is left out, as in Table 8. A zero vector has similarity 0 with everything.

        Args:
            queries: any number of sentences, none included.
            count: the most neighbours of a query; fewer where the corpus, or the clusters searched, hold no more.

        Raises:
            UserError: `queries` is one string, `count` is below 1, or the queries' vectors do not fit the index.
        """
        if count < 1:
            raise UserError(f"retrieval count={count}: it must be at least 1")
        if not _texts(queries):
            return []
        vectors = _unit_vectors(self.encode, list(queries))
        if vectors.shape[1] != self.index.d:
            raise UserError(
                f"the index holds vectors of {self.index.d} dimensions and the encoder gives {vectors.shape[1]}: "
                "search with the encoder that made it"
            )
        found = self.index.search(vectors.numpy(), min(count + 1, len(self)))  # one more: the query itself may be in it
        return [
            [
                Neighbour(self.sentences[i], min(max(similarity, -1.0), 1.0))
                for similarity, i in zip(similarities, rows, strict=True)
                if i >= 0 and self.sentences[i] != query  # -1: the clusters searched hold no more
            ][:count]
            for query, similarities, rows in zip(queries, *(part.tolist() for part in found), strict=True)
        ]

    def save(self, folder: str | Path) -> None:
        """Write the FAISS file, the sentences and their checksums, each whole before it is moved to its place."""
        import faiss

        with written_whole(folder, last=SETTINGS_FILE) as new:
            faiss.write_index(self.index, str(new / INDEX_FILE))
            (new / SENTENCES_FILE).write_text(json.dumps(self.sentences, ensure_ascii=False), encoding="utf-8")
            settings = {file: _checksum(new / file) for file in (INDEX_FILE, SENTENCES_FILE)}
            (new / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path, encode: Encode) -> "SentenceIndex":
        """What `save` wrote, without encoding its sentences anew.

        Args:
            folder: as given to `save`.
            encode: the encoder that made the index; its vector of the first sentence is compared.

        Raises:
            UserError: files that are missing, damaged or from different savings, or another encoder.
        """
        import faiss

        folder = Path(folder)
        for file, checksum in _checksums(folder).items():  # before FAISS, which trusts what its files say
            if not (folder / file).is_file():
                raise UserError(f"{folder}: {file} is missing; build the index again")
            if _checksum(folder / file) != checksum:
                raise UserError(f"{folder}: {file} is damaged or of another index; build the index again")
        try:
            sentences = json.loads((folder / SENTENCES_FILE).read_text(encoding="utf-8"))
            index = faiss.read_index(str(folder / INDEX_FILE))
        except (ValueError, RuntimeError) as error:
            raise UserError(f"{folder} is damaged: {one_line(error)}") from error
        if not isinstance(sentences, list) or not sentences or index.ntotal != len(sentences):
            raise UserError(f"{folder} is damaged: {INDEX_FILE} and {SENTENCES_FILE} do not belong together")
        loaded = cls(encode, sentences, index)
        loaded._check_encoder(folder)
        return loaded

    def _check_encoder(self, folder: Path) -> None:
        """An index and an encoder that did not make it give neighbours that mean nothing."""
        vector = _unit_vectors(self.encode, self.sentences[:1])
        if vector.shape[1] != self.index.d:
            raise UserError(
                f"{folder} holds vectors of {self.index.d} dimensions and the encoder gives {vector.shape[1]}: "
                "it was made with another encoder"
            )
        similarities, _ = self.index.search(vector.numpy(), 1)
        if vector.any() and similarities[0, 0] < _SAME:
            raise UserError(f"{folder} was made with another encoder: its first sentence has another vector")


def _texts(sentences: Sequence[str]) -> Sequence[str]:
    if isinstance(sentences, str):
        raise UserError("retrieval takes a list of sentences, and was given one string")
    return sentences


def _unit_vectors(encode: Encode, sentences: list[str]) -> Tensor:
    """[n, dim] float32 on the CPU, filled part by part so that the vectors are in memory once."""
    vectors = torch.empty(0)
    for start in range(0, len(sentences), _SENTENCES_AT_A_TIME):
        part = F.normalize(encode(sentences[start : start + _SENTENCES_AT_A_TIME]).float().cpu(), dim=-1)
        if start == 0:
            vectors = torch.empty(len(sentences), part.shape[1])
        if not part.isfinite().all():
            odd = int((~part.isfinite()).any(dim=1).nonzero()[0, 0])
            raise UserError(f"retrieval: the vector of {sentences[start + odd]!r} is not finite")
        vectors[start : start + len(part)] = part
    return vectors


def _exact(vectors: Tensor) -> "faiss.Index":
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors.numpy())
    return index


def _inverted_file(vectors: Tensor, lists: int | None, probes: int | None) -> "faiss.Index":
    import faiss

    n, dim = vectors.shape
    if lists is None:
        lists = max(min(math.isqrt(n), n // _FEWEST_SENTENCES_A_LIST), 1)
    lists = min(lists, n)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1  # few sentences a list are the caller's choice, and no warning
    index.train(vectors.numpy())
    index.add(vectors.numpy())
    index.nprobe = min(probes or math.ceil(lists / 4), lists)
    return index


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksums(folder: Path) -> dict[str, str]:
    path = folder / SETTINGS_FILE
    if not path.is_file():
        raise UserError(f"{folder} holds no index: {SETTINGS_FILE} is missing")
    try:
        checksums = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {one_line(error)}") from error
    if not isinstance(checksums, dict) or checksums.keys() != {INDEX_FILE, SENTENCES_FILE}:
        raise UserError(f"{path} is damaged: it must hold the checksums of {INDEX_FILE} and {SENTENCES_FILE}")
    return checksums
