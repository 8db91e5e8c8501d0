"""Functions around `encode`: with a cache, and followed by a post-processing."""

import logging
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import Encode, unit_vectors

log = logging.getLogger(__name__)


class EncodeOnce:
    """An `encode` function that caches the vectors of `sentences`, because several tasks share sentences.

    Other sentences are encoded at each call. UserError is raised if a vector is not finite.
    """

    def __init__(self, encode: Encode, sentences: list[str]) -> None:
        self._encode = encode
        self._row = {sentence: row for row, sentence in enumerate(dict.fromkeys(sentences))}
        self._vectors = self._encode_checked(list(self._row)) if self._row else torch.empty(0)

    def __call__(self, sentences: list[str]) -> Tensor:
        """Return vectors [n, dim]."""
        if self._row and self._row.keys() >= set(sentences):
            return self._vectors[[self._row[sentence] for sentence in sentences]]
        return self._encode_checked(sentences)

    def _encode_checked(self, sentences: list[str]) -> Tensor:
        vectors = self._encode(sentences)
        bad = (~vectors.isfinite()).any(dim=1).nonzero()
        if len(bad):
            raise UserError(f"the encoder's vector of {sentences[int(bad[0])]!r} is not finite")
        return vectors


class Postprocessed:
    """An `encode` function followed by a post-processing, in the order of `SentenceEncoder.encode`.

    Args:
        encode: function from sentences to vectors [n, dim] that are not normalized.
        postprocess: if it is not fitted, each call fits it on the sentences of the call, which are those of one task.
        device: device of the fit.
        normalize: scale the vectors to length 1 after the post-processing.
    """

    def __init__(
        self, encode: Encode, postprocess: PostProcess, device: str | torch.device = "cpu", normalize: bool = False
    ) -> None:
        self._encode, self._postprocess, self._device, self._normalize = encode, postprocess, device, normalize
        self._fit_each_call = not postprocess.fitted

    def __call__(self, sentences: list[str]) -> Tensor:
        """Return vectors [n, k] on the CPU."""
        vectors = self._encode(sentences).to(self._device)
        if self._fit_each_call:
            self._postprocess.fit(vectors)
        vectors = self._postprocess.transform(vectors).cpu()
        return unit_vectors(vectors) if self._normalize else vectors


def sentences_to_fit_on(
    source: str | Path,
    columns: int | str | Sequence[int | str] | None = None,
    limit: int | None = None,
    seed: int = 42,
) -> list[str]:
    """Return the distinct sentences of a file, or a random sample of them.

    Args:
        source: see data.readers.read_rows.
        columns: one or several columns by name or by position from 0; None for all.
        limit: size of the sample, which is drawn with `seed`; None for all sentences.

    Raises:
        UserError: the file or a column does not exist, or a row is invalid.
    """
    if isinstance(columns, int | str):
        columns = [columns]
    sentences = list(dict.fromkeys(sentence for row in read_rows(source, columns) for sentence in row))
    if limit is not None and limit < len(sentences):
        sentences = random.Random(seed).sample(sentences, limit)
    log.info("fitting the post-processing on %d sentences of %s", len(sentences), source)
    return sentences
