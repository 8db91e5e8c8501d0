"""Search sentences by cosine similarity, among vectors in float32 or quantized.

`int8` stores a level per dimension. With the range [low, high] of a dimension and step = (high - low) / 255, the level
of x is floor((x - low) / step), clipped to 0 to 255, and is stored minus 128. It stands for the middle of its interval,
as in FAISS. `binary` stores 1 for x > 0 and otherwise 0, with 8 dimensions in a byte; they stand for 1 and -1. The
stored values are those of `quantize_embeddings` of sentence-transformers, where `binary` is named `ubinary`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_write, read_json, write_json
from simcse_pl.utils.tensors import Encode, read_weights, unit_vectors
from simcse_pl.utils.text import Neighbour, checked_sentences

FLOAT32, INT8, BINARY = PRECISIONS = ("float32", "int8", "binary")
VECTORS_FILE = "vectors.safetensors"
SENTENCES_FILE = "sentences.json"
SETTINGS_FILE = "index.json"
_BLOCK = 8192  # queries and vectors that are compared at once: 256 MB of similarities
_DIGITS = 6  # of a similarity: float32 rounds the seventh


@dataclass(frozen=True, eq=False)
class Quantizer:
    """A precision of vectors, and the conversion to and from it.

    Examples:
        >>> vectors = Quantizer("int8", np.load("captions.npy.ranges.npy")).dequantize(np.load("captions.npy"))
    """

    precision: str = FLOAT32
    ranges: np.ndarray | None = None  # for int8, the lowest and the highest value of each dimension, [2, dim] float32

    @classmethod
    def fitted(cls, precision: str, vectors: np.ndarray) -> "Quantizer":
        """Return a quantizer whose ranges are those of vectors [n, dim]."""
        return cls(precision, np.stack([vectors.min(axis=0), vectors.max(axis=0)]) if precision == INT8 else None)

    def quantize(self, vectors: np.ndarray) -> np.ndarray:
        """Return vectors [n, dim] float32 as stored: [n, dim], or [n, dim / 8] if binary.

        Raises:
            UserError: a vector is not finite, or binary vectors do not have a multiple of 8 dimensions.
        """
        if not np.isfinite(vectors).all():
            raise UserError("the encoder returns a vector that is not finite")
        if self.precision == BINARY:
            if vectors.shape[1] % 8:
                raise UserError(f"binary vectors need a multiple of 8 dimensions, not {vectors.shape[1]}")
            return np.packbits(vectors > 0, axis=1)
        if self.ranges is None:
            return vectors
        low, step = self.ranges[0], np.ptp(self.ranges, axis=0) / 255
        levels = np.floor((vectors - low) / np.where(step == 0, np.float32(1), step)).clip(0, 255)
        return np.asarray((levels - 128).astype(np.int8))

    def dequantize(self, codes: np.ndarray) -> np.ndarray:
        """Return stored vectors as float32 [n, dim]."""
        if self.precision == BINARY:
            return np.unpackbits(codes, axis=1).astype(np.float32) * 2 - 1
        if self.ranges is None:
            return codes
        step = np.ptp(self.ranges, axis=0) / 255
        return np.asarray(self.ranges[0] + (codes.astype(np.float32) + np.float32(128.5)) * step)


@dataclass(eq=False)
class SentenceIndex:
    """Distinct sentences and their unit vectors, in float32 or quantized.

    The similarity is the cosine of the query's float32 vector with the vector in the index, dequantized if needed.

    Examples:
        >>> index = SentenceIndex.build(encode, captions)
        >>> index.search(["A man riding a small boat in a harbor."], top_k=3)
        >>> index.save("captions", {"encoder": "outputs/mine/encoder"})
    """

    encode: Encode  # returns vectors [n, dim] of n sentences
    sentences: list[str]  # distinct
    vectors: Tensor  # of the sentences, [n, dim] float32 on the CPU, of length 1, or these vectors quantized
    quantizer: Quantizer = field(default_factory=Quantizer)
    prompt_name: str | None = None  # of the sentences
    device: str | torch.device = "cpu"  # where vectors are compared, a block of them at a time

    def __len__(self) -> int:
        return len(self.sentences)

    @classmethod
    def build(cls, encode: Encode, sentences: Sequence[str]) -> "SentenceIndex":
        """Encode every distinct sentence once."""
        index = cls(encode, [], torch.empty(0))
        index.add(sentences)
        return index

    def quantized(self, precision: str) -> "SentenceIndex":
        """Return an index of the same sentences with quantized vectors.

        The ranges of int8 are those of the present vectors. Sentences that are added do not change them.
        """
        quantizer = Quantizer.fitted(precision, self.vectors.numpy())
        codes = torch.from_numpy(quantizer.quantize(self.vectors.numpy()))
        return SentenceIndex(self.encode, self.sentences, codes, quantizer, self.prompt_name)

    def add(self, sentences: Sequence[str]) -> int:
        """Encode and append the sentences that are not in the index, and return their number."""
        known = set(self.sentences)
        new = [sentence for sentence in dict.fromkeys(checked_sentences(sentences)) if sentence not in known]
        if new:
            vectors = torch.from_numpy(self.quantizer.quantize(self._encode_to_unit(new).numpy()))
            self.vectors = torch.cat([self.vectors, vectors]) if known else vectors
            self.sentences = [*self.sentences, *new]
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
        """
        queries = checked_sentences(queries)
        if not queries:
            return []
        results = []
        nearest = self.nearest(self._encode_to_unit(queries), top_k + leave_out_equal)
        for query, ranked in zip(queries, nearest, strict=True):
            near = [Neighbour(self.sentences[place], similarity) for place, similarity in ranked]
            near = [one for one in near if not (leave_out_equal and one.sentence == query)]
            results.append([one for one in near[:top_k] if threshold is None or one.similarity >= threshold])
        return results

    def nearest(self, queries: Tensor, top_k: int) -> list[list[tuple[int, float]]]:
        """Return the positions and similarities of the nearest sentences, ordered by similarity, then by position.

        Args:
            queries: [queries, dim] float32 on the CPU, of length 1.
            top_k: maximum number of sentences per query.
        """
        results = []
        for part in queries.to(self.device).split(_BLOCK):
            blocks = []
            for start in range(0, len(self), _BLOCK):
                vectors = torch.from_numpy(self.quantizer.dequantize(self.vectors[start : start + _BLOCK].numpy()))
                vectors = vectors.to(self.device)
                if self.quantizer.precision != FLOAT32:
                    vectors = unit_vectors(vectors)
                similarities, places = (part @ vectors.T).topk(min(top_k, len(vectors)))
                blocks.append((similarities, places + start))
            similarities, places = (torch.cat(tensors, dim=1).cpu() for tensors in zip(*blocks, strict=True))
            similarities, order = similarities.topk(min(top_k, len(self)))
            negated = -similarities.double().round(decimals=_DIGITS).clamp(-1, 1)
            for row in zip(negated.tolist(), places.gather(1, order).tolist(), strict=True):
                results.append([(place, -value) for value, place in sorted(zip(*row, strict=True))])
        return results

    def _encode_to_unit(self, sentences: list[str]) -> Tensor:
        """Return [n, dim] float32 on the CPU."""
        return unit_vectors(self.encode(sentences).float().cpu())

    def save(self, folder: str | Path, settings: Mapping[str, Any]) -> None:
        """Write the sentences, their vectors and precision, and the encoder's settings, which `load` compares."""
        saved = {"encoder": settings, "precision": self.quantizer.precision, "prompt_name": self.prompt_name}
        ranges = self.quantizer.ranges
        tensors = {"vectors": self.vectors} | ({} if ranges is None else {"ranges": torch.from_numpy(ranges)})
        with atomic_write(folder, last=SETTINGS_FILE) as new:
            save_file(tensors, new / VECTORS_FILE)
            write_json(new / SENTENCES_FILE, self.sentences)
            write_json(new / SETTINGS_FILE, saved)

    @classmethod
    def load(cls, folder: str | Path, encode: Encode, settings: Mapping[str, Any]) -> "SentenceIndex":
        """Load what `save` wrote, for an encoder whose settings, except its name, equal the saved ones.

        Raises:
            UserError: a file is missing or damaged, or the encoder or its settings differ.
        """
        path = Path(folder) / SETTINGS_FILE
        with reraise_as(f"{folder} holds no index, or a damaged one"):
            saved, sentences = read_json(path), read_json(path.with_name(SENTENCES_FILE))
            tensors = read_weights(path.with_name(VECTORS_FILE))
            ranges = tensors["ranges"].numpy() if "ranges" in tensors else None
            quantizer = Quantizer(PRECISIONS[PRECISIONS.index(saved["precision"])], ranges)
            index = cls(encode, sentences, tensors["vectors"], quantizer, saved.get("prompt_name"))
        for name, value in saved["encoder"].items():
            if name != "encoder" and settings.get(name) != value:
                raise UserError(
                    f"{folder} was built with {name}={value}, but the encoder has {name}={settings.get(name)}: "
                    "load the encoder with the same settings, or build the index again"
                )
        return index
