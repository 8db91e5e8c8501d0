"""Ways for an `encode` to be called: on columns, once a sentence, and followed by a fitted post-processing."""

import logging
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.models.protocols import Encode
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.validation import check_seed

log = logging.getLogger(__name__)


def encode_columns(encode: Encode, *columns: Sequence[str]) -> list[Tensor]:
    """The vectors of some columns of sentences.

    Args:
        encode: sentences to vectors [n, dim]; it is called once, with each distinct sentence once, in sorted order.
        columns: of any lengths.

    Returns:
        [n, dim] of each column, in its order.
    """
    distinct = sorted(set().union(*columns))
    row = {sentence: i for i, sentence in enumerate(distinct)}
    vectors = encode(distinct)
    return [vectors[[row[sentence] for sentence in column]] for column in columns]


def pair_features(first: Tensor, second: Tensor) -> Tensor:
    """SentEval's features of a pair, |u - v| and u * v: from [n, dim] each to [n, 2 dim]."""
    return torch.cat([(first - second).abs(), first * second], dim=1)


class EncodeOnce:
    """An `encode` that knows some sentences: they go through the encoder once, however many tasks they stand in.

    Args:
        encode: sentences to vectors [n, dim].
        sentences: to encode now and to remember; others are encoded whenever they are asked for.

    Raises:
        UserError: a vector that is not finite.
    """

    def __init__(self, encode: Encode, sentences: list[str]) -> None:
        self._encode = encode
        self._row = {sentence: row for row, sentence in enumerate(dict.fromkeys(sentences))}
        self._vectors = self._encoded(list(self._row)) if self._row else None

    def __call__(self, sentences: list[str]) -> Tensor:
        """Vectors [n, dim]."""
        if self._vectors is None or not all(sentence in self._row for sentence in sentences):
            return self._encoded(sentences)
        return self._vectors[[self._row[sentence] for sentence in sentences]]

    def _encoded(self, sentences: list[str]) -> Tensor:
        vectors = self._encode(sentences)
        odd = (~vectors.isfinite()).any(dim=1).nonzero()
        if len(odd):
            raise UserError(
                f"the encoder's vector of {sentences[int(odd[0])]!r} is not finite: is its training broken?"
            )
        return vectors


class Postprocessed:
    """An `encode` followed by a post-processing, in the order of `SentenceEncoder.encode`.

    Args:
        encode: sentences to vectors [n, dim], which it does not normalize.
        postprocess: if it is not fitted yet, it is fitted anew in every call, on the sentences of that call: a task's
            own ("target").
        device: where it is fitted.
        normalize: scale the vectors to length 1 after the post-processing.
    """

    def __init__(
        self, encode: Encode, postprocess: PostProcess, device: str | torch.device = "cpu", normalize: bool = False
    ) -> None:
        self._encode = encode
        self._postprocess = postprocess
        self._fit_on_target = not postprocess.fitted
        self._device = device
        self._normalize = normalize

    def __call__(self, sentences: list[str]) -> Tensor:
        """Vectors [n, k] on the CPU."""
        vectors = self._encode(sentences).to(self._device)
        if self._fit_on_target:
            self._postprocess.fit(vectors)
        vectors = self._postprocess.transform(vectors).cpu()
        return unit_vectors(vectors) if self._normalize else vectors


def sentences_to_fit_on(
    source: str | Path,
    columns: int | str | Sequence[int | str] | None = None,
    limit: int | None = None,
    seed: int = 42,
) -> list[str]:
    """The distinct sentences of a file, or some of them.

    Args:
        source: see data.readers.read_rows.
        columns: of the file, one or several, by name or by position from 0; all where None.
        limit: at most so many, drawn at random.
        seed: of what is drawn.

    Raises:
        UserError: no such file or column, a bad row, a limit that leaves too few, or a seed out of range.
    """
    if limit is not None and limit < 2:
        raise UserError(f"fit_limit={limit}: it must be at least 2, or null for all sentences")
    check_seed(seed)
    if isinstance(columns, int | str):
        columns = [columns]
    sentences = list(dict.fromkeys(sentence for row in read_rows(source, columns) for sentence in row))
    if limit is not None and limit < len(sentences):
        sentences = random.Random(seed).sample(sentences, limit)
    log.info("the post-processing is fitted on %d sentences of %s", len(sentences), source)
    return sentences
