"""Search sentences by cosine similarity."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from simcse_pl.inference.quantization import BINARY, FLOAT32, Quantizer
from simcse_pl.models.protocols import Encode
from simcse_pl.results.neighbour import Neighbour
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_write, read_json
from simcse_pl.utils.tensors import read_weights, unit_vectors

VECTORS_FILE = "vectors.safetensors"
SETTINGS_FILE = "index.json"
_MAX_SIMILARITIES = 1 << 26  # computed at once: 256 MB in float32
_MAX_DISTANCE = 0.05  # between a sentence's vectors in float32 and in half precision
_MAX_DISTANCE_OF_SIGNS = 0.5  # the same for binary vectors of length 1: one sign of 16 differs
RESCORE = 4  # docs/recipes.md has the recall of several values
_DIGITS = 6  # of a similarity: float32 rounds the seventh


@dataclass(eq=False)
class SentenceIndex:
    """Distinct sentences and their unit vectors, in float32 or quantized.

    A search of quantized vectors compares the quantized query with them, and takes the nearest `rescore` x `top_k`
    sentences as candidates. Then it ranks these by the cosine of the query's float32 vector with the dequantized
    vectors, and returns this cosine as the similarity (Yamada et al. 2021).

    Args:
        encode: returns vectors [n, dim] of n sentences. It encodes the queries.
        sentences: distinct sentences.
        vectors: [n, dim] float32 on the CPU, of length 1, or these vectors quantized; row i is the vector of
            sentence i.
        cells: (number of cells, cells searched). FAISS clusters the vectors into cells and searches
            only the cells nearest to a query, which is faster and may miss neighbours. None for exact
            search, which does not need FAISS. Vectors in cells are not quantized.
        quantizer: the precision of `vectors`.
        rescore: candidates of a quantized search as a multiple of `top_k`.

    Examples:
        >>> index = SentenceIndex.build(encode, captions)
        >>> index.search(["A man riding a small boat in a harbor."], top_k=3)
        >>> index.save("captions", {"encoder": "outputs/mine/encoder"})
    """

    encode: Encode
    sentences: list[str]
    vectors: Tensor
    cells: tuple[int, int] | None = None
    quantizer: Quantizer = field(default_factory=Quantizer)
    rescore: int = RESCORE
    _faiss: Any = field(default=None, init=False)  # built by the first search

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def dim(self) -> int:
        """Return the number of dimensions of a vector."""
        return self.vectors.shape[1] * (8 if self.quantizer.precision == BINARY else 1)

    @classmethod
    def build(cls, encode: Encode, sentences: Sequence[str], cells: tuple[int, int] | None = None) -> "SentenceIndex":
        """Encode every distinct sentence once; see the class for the other arguments.

        Raises:
            UserError: there are no sentences, or a vector is not finite.
        """
        index = cls(encode, [], torch.empty(0), cells)
        if not index.add(sentences):
            raise UserError("there are no sentences to index")
        return index

    def quantized(self, precision: str, rescore: int = RESCORE) -> "SentenceIndex":
        """Return an index of the same sentences with quantized vectors, without cells; see the class.

        The ranges of int8 and uint8 are those of the present vectors. Sentences that are added do not change them.
        """
        vectors = self.quantizer.dequantize(self.vectors.numpy())
        quantizer = Quantizer.calibrated(precision, [vectors])
        codes = torch.from_numpy(quantizer.quantize(vectors))
        return SentenceIndex(self.encode, self.sentences, codes, quantizer=quantizer, rescore=rescore)

    def add(self, sentences: Sequence[str]) -> int:
        """Encode and append the sentences that are not in the index.

        Returns:
            The number of new sentences.

        Raises:
            UserError: a vector is not finite or has another width than those of the index.
        """
        known = set(self.sentences)
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in known]
        if new:
            vectors = torch.from_numpy(self.quantizer.quantize(self._unit_vectors(new).numpy()))
            self.vectors = torch.cat([self.vectors, vectors]) if known else vectors
            self.sentences = [*self.sentences, *new]
            self._faiss = None
        return len(new)

    def search(
        self,
        queries: Sequence[str],
        top_k: int = 3,
        threshold: float | None = None,
        leave_out_equal: bool = False,
    ) -> list[list[Neighbour]]:
        """Return the nearest sentences of every query, ordered by similarity, then by position.

        A zero vector has similarity 0 with every vector.

        Args:
            queries: any number of sentences.
            top_k: maximum number of neighbours per query.
            threshold: minimum cosine similarity; None for no minimum.
            leave_out_equal: omit a sentence that equals the query, as in Table 8 of the paper.

        Raises:
            UserError: `top_k` is below 1, `threshold` is not in [-1, 1], or the encoder's vectors
                have another width than those of the index.
        """
        if top_k < 1:
            raise UserError(f"top_k={top_k}: it must be at least 1")
        if threshold is not None and not -1 <= threshold <= 1:
            raise UserError(f"threshold={threshold}: it must be between -1 and 1")
        if not queries:
            return []
        nearest = self.nearest(self._unit_vectors(list(queries)), top_k + leave_out_equal)
        found = []
        for query, ranked in zip(queries, nearest, strict=True):
            near = [Neighbour(self.sentences[place], similarity) for place, similarity in ranked]
            near = [one for one in near if not (leave_out_equal and one.sentence == query)]
            near = [one for one in near if threshold is None or one.similarity >= threshold]
            found.append(near[:top_k])
        return found

    def nearest(self, queries: Tensor, top_k: int) -> list[list[tuple[int, float]]]:
        """Return the positions and similarities of the nearest sentences, ordered by similarity, then by position.

        Args:
            queries: [queries, dim] float32 on the CPU, of length 1.
            top_k: maximum number of sentences per query.
        """
        if self.rescore < 1:
            raise UserError(f"rescore={self.rescore}: it must be at least 1")
        search = self._search_cells if self.cells else self._search_all
        if self.quantizer.precision != FLOAT32:
            search = self._search_quantized
        similarities, places = search(queries, min(top_k, len(self)))
        negated = -similarities.double().round(decimals=_DIGITS).clamp(-1, 1)
        found = []
        for row in zip(negated.tolist(), places.tolist(), strict=True):
            ranked = sorted(pair for pair in zip(*row, strict=True) if pair[1] >= 0)
            found.append([(place, -value) for value, place in ranked[:top_k]])
        return found

    def _search_all(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return similarities and positions, both [queries, count]."""
        parts = queries.split(max(1, _MAX_SIMILARITIES // len(self)))
        similarities, places = zip(*((part @ self.vectors.T).topk(count) for part in parts), strict=True)
        return torch.cat(similarities), torch.cat(places)

    def _search_cells(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the same, found by FAISS. Positions are -1 if the searched cells have fewer than `count` sentences."""
        if self._faiss is None:
            import faiss  # here, because it loads a second OpenMP library

            (n, dim), (cells, searched) = self.vectors.shape, self.cells or (1, 1)
            self._faiss = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, min(cells, n), faiss.METRIC_INNER_PRODUCT)
            self._faiss.cp.min_points_per_centroid = 1  # otherwise FAISS warns of small cells
            self._faiss.train(self.vectors.numpy())
            self._faiss.add(self.vectors.numpy())
            self._faiss.nprobe = searched
        similarities, places = self._faiss.search(queries.numpy(), count)
        return torch.from_numpy(similarities), torch.from_numpy(places)

    def _search_quantized(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the rescored similarities and the positions of all candidates, both [queries, candidates]."""
        count = min(count * self.rescore, len(self))
        at_once = max(1, _MAX_SIMILARITIES // max(len(self), 4 * count * self.dim))  # dequantizing has temporary copies
        similarities, places = [], []
        for part in queries.split(at_once):
            places.append(torch.from_numpy(self.quantizer.candidates(part.numpy(), self.vectors.numpy(), count)))
            found = unit_vectors(torch.from_numpy(self.quantizer.dequantize(self.vectors[places[-1]].numpy())))
            similarities.append(torch.einsum("qd,qnd->qn", part, found))
        return torch.cat(similarities), torch.cat(places)

    def _unit_vectors(self, sentences: list[str]) -> Tensor:
        """Return [n, dim] float32 on the CPU."""
        vectors = unit_vectors(self.encode(sentences).float().cpu())
        if len(self) and vectors.shape[1] != self.dim:
            raise UserError(
                f"the index has vectors of {self.dim} dimensions, but the encoder returns "
                f"{vectors.shape[1]}: use the encoder that built the index"
            )
        finite = vectors.isfinite().all(dim=1)
        if not finite.all():
            raise UserError(f"the vector of {sentences[int(finite.int().argmin())]!r} is not finite")
        return vectors

    def save(self, folder: str | Path, settings: Mapping[str, Any]) -> None:
        """Write the sentences, their vectors, their precision and the encoder's settings, but not `cells`.

        Args:
            folder: created if it does not exist; an index in it is replaced.
            settings: settings of the encoder, which `load` compares.
        """
        own = {"precision": self.quantizer.precision, "rescore": self.rescore}
        saved = {"encoder": dict(settings), **own, "sentences": self.sentences}
        ranges = self.quantizer.ranges
        tensors = {"vectors": self.vectors} | ({} if ranges is None else {"ranges": torch.from_numpy(ranges)})
        content = json.dumps(saved, ensure_ascii=False, indent=1)
        with atomic_write(folder, last=SETTINGS_FILE) as new:
            save_file(tensors, new / VECTORS_FILE)
            (new / SETTINGS_FILE).write_text(content + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path, encode: Encode, settings: Mapping[str, Any]) -> "SentenceIndex":
        """Load what `save` wrote.

        Args:
            folder: the folder that was passed to `save`.
            encode: the encoder that built the index. It encodes the first and the longest sentence
                again, to check this.
            settings: settings of this encoder; all except its name must equal the saved ones.

        Raises:
            UserError: a file is missing or damaged, or the encoder or its settings differ.
        """
        if not (Path(folder) / SETTINGS_FILE).is_file():
            raise UserError(f"{folder} holds no index: {SETTINGS_FILE} is missing")
        damaged = f"{folder} is damaged, build the index again"
        with reraise_as(damaged):
            saved = read_json(Path(folder) / SETTINGS_FILE)
            sentences, saved_settings = list(saved["sentences"]), dict(saved["encoder"])
            tensors = read_weights(Path(folder) / VECTORS_FILE)
            ranges = tensors["ranges"].numpy() if "ranges" in tensors else None
            with reraise_as(damaged, users_too=True):
                quantizer = Quantizer(saved.get("precision", FLOAT32), ranges)  # older versions wrote no precision
            vectors, codes = tensors["vectors"], tensors["vectors"].numpy()
            fit = codes.dtype == quantizer.dtype and codes.shape[:-1] == (len(sentences),)
            fit = fit and (ranges is None or ranges.shape == (2, *codes.shape[1:]))
            if not fit or not all(own.isfinite().all() for own in tensors.values()):
                raise ValueError(f"{VECTORS_FILE} must hold {len(sentences)} finite vectors in {quantizer.precision}")
            index = cls(encode, sentences, vectors, None, quantizer, int(saved.get("rescore", RESCORE)))
        for name, value in saved_settings.items():
            if name != "encoder" and settings.get(name) != value:
                raise UserError(
                    f"{folder} was built with {name}={value}, but the encoder has {name}={settings.get(name)}: "
                    "load the encoder with the same settings, or build the index again"
                )
        places = [0, max(range(len(sentences)), key=lambda place: len(sentences[place]))]
        again = quantizer.quantize(index._unit_vectors([sentences[place] for place in places]).numpy())
        one, other = (unit_vectors(torch.from_numpy(quantizer.dequantize(own))) for own in (again, codes[places]))
        distances = torch.linalg.vector_norm(one - other, dim=1)
        if distances.max() > (_MAX_DISTANCE_OF_SIGNS if quantizer.precision == BINARY else _MAX_DISTANCE):
            raise UserError(
                f"{folder} was built by another encoder or with other settings: the vector of "
                f"{sentences[places[int(distances.argmax())]][:40]!r} differs; build the index again"
            )
        return index


def recall(index: SentenceIndex, exact: SentenceIndex, top_k: int = 10, most: int = 1000) -> float:
    """Return the fraction of the `top_k` nearest sentences of exact search that an index finds, too.

    The queries are sentences of the index at equal distances. The entry of the query itself is left out.

    Args:
        index: has the sentences of `exact`. If it has fewer dimensions, they are the first ones of `exact`.
        exact: an index in float32 without cells.
        top_k: sentences per query.
        most: maximum number of queries.
    """
    places = range(0, len(exact), math.ceil(len(exact) / most))
    vectors = exact.vectors[:: places.step]
    found = index.nearest(unit_vectors(vectors[:, : index.dim]), top_k + 1)
    missed = total = 0
    for own, *rows in zip(places, found, exact.nearest(vectors, top_k + 1), strict=True):
        near, nearest = (set([place for place, _ in row if place != own][:top_k]) for row in rows)
        missed, total = missed + len(nearest - near), total + len(nearest)
    return 1 - missed / max(total, 1)
