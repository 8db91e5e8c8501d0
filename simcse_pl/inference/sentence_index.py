"""Search sentences by cosine similarity."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from simcse_pl.models.encoder_files import read_weights
from simcse_pl.models.protocols import Encode
from simcse_pl.results.neighbourhood import Neighbour
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_write, read_json
from simcse_pl.utils.tensors import unit_vectors

VECTORS_FILE = "vectors.safetensors"
SETTINGS_FILE = "index.json"
_MAX_SIMILARITIES = 1 << 26  # computed at once: 256 MB in float32
_MAX_DISTANCE = 0.05  # between a sentence's vectors in float32 and in half precision
_DIGITS = 6  # of a similarity: float32 rounds the seventh


@dataclass(eq=False)
class SentenceIndex:
    """Distinct sentences and their unit vectors.

    Args:
        encode: returns vectors [n, dim] of n sentences. It encodes the queries.
        sentences: distinct sentences.
        vectors: [n, dim] float32 on the CPU, of length 1; row i is the vector of sentence i.
        cells: (number of cells, cells searched). FAISS clusters the vectors into cells and searches
            only the cells nearest to a query, which is faster and may miss neighbours. None for exact
            search, which does not need FAISS.

    Examples:
        >>> index = SentenceIndex.build(encode, captions)
        >>> index.search(["A man riding a small boat in a harbor."], top_k=3)
        >>> index.save("captions")
    """

    encode: Encode
    sentences: list[str]
    vectors: Tensor
    cells: tuple[int, int] | None = None
    _faiss: Any = field(default=None, init=False)  # built by the first search

    def __len__(self) -> int:
        return len(self.sentences)

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
            vectors = self._unit_vectors(new)
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
        search = self._search_cells if self.cells else self._search_all
        similarities, places = search(self._unit_vectors(list(queries)), min(top_k + leave_out_equal, len(self)))
        negated = -similarities.double().round(decimals=_DIGITS).clamp(-1, 1)
        found = []
        for query, *row in zip(queries, negated.tolist(), places.tolist(), strict=True):
            ranked = sorted(pair for pair in zip(*row, strict=True) if pair[1] >= 0)
            near = [Neighbour(self.sentences[place], -value) for value, place in ranked]
            near = [one for one in near if not (leave_out_equal and one.sentence == query)]
            near = [one for one in near if threshold is None or one.similarity >= threshold]
            found.append(near[:top_k])
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

    def _unit_vectors(self, sentences: list[str]) -> Tensor:
        """Return [n, dim] float32 on the CPU."""
        vectors = unit_vectors(self.encode(sentences).float().cpu())
        if len(self) and vectors.shape[1] != self.vectors.shape[1]:
            raise UserError(
                f"the index has vectors of {self.vectors.shape[1]} dimensions, but the encoder returns "
                f"{vectors.shape[1]}: use the encoder that built the index"
            )
        finite = vectors.isfinite().all(dim=1)
        if not finite.all():
            raise UserError(f"the vector of {sentences[int(finite.int().argmin())]!r} is not finite")
        return vectors

    def save(self, folder: str | Path, settings: Mapping[str, Any] | None = None) -> None:
        """Write the sentences, their vectors and the encoder's settings, but not `cells`.

        Args:
            folder: created if it does not exist; an index in it is replaced.
            settings: settings of the encoder, which `load` compares.
        """
        saved = {"encoder": settings or {}, "sentences": self.sentences}
        content = json.dumps(saved, ensure_ascii=False, indent=1)
        with atomic_write(folder, last=SETTINGS_FILE) as new:
            save_file({"vectors": self.vectors}, new / VECTORS_FILE)
            (new / SETTINGS_FILE).write_text(content + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path, encode: Encode, settings: Mapping[str, Any] | None = None) -> "SentenceIndex":
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
        with reraise_as(f"{folder} is damaged, build the index again"):
            saved = read_json(Path(folder) / SETTINGS_FILE)
            sentences, saved_settings = list(saved["sentences"]), dict(saved["encoder"])
            vectors = read_weights(Path(folder) / VECTORS_FILE)["vectors"].float()
            if vectors.shape[:-1] != (len(sentences),) or not vectors.isfinite().all():
                raise ValueError(f"{VECTORS_FILE} must hold {len(sentences)} finite vectors")
        settings = settings or saved_settings
        for name, value in saved_settings.items():
            if name != "encoder" and settings.get(name) != value:
                raise UserError(
                    f"{folder} was built with {name}={value}, but the encoder has {name}={settings.get(name)}: "
                    "load the encoder with the same settings, or build the index again"
                )
        index = cls(encode, sentences, vectors)
        places = [0, max(range(len(sentences)), key=lambda place: len(sentences[place]))]
        again = index._unit_vectors([sentences[place] for place in places])
        distances = torch.linalg.vector_norm(again - vectors[places], dim=1)
        if distances.max() > _MAX_DISTANCE:
            raise UserError(
                f"{folder} was built by another encoder or with other settings: the vector of "
                f"{sentences[places[int(distances.argmax())]][:40]!r} differs; build the index again"
            )
        return index
