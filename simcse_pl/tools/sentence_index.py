"""Search sentences by cosine similarity, exactly and in float32."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import PositiveInt
from safetensors.torch import save_file
from torch import Tensor

from simcse_pl.data.rows import iterate_sentences
from simcse_pl.evaluation.results import QueryResults, RetrievalResults
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_write, finish_write, read_json, write_json
from simcse_pl.utils.tensors import DOCUMENT, QUERY, Encode, finite, read_weights, unit_vectors
from simcse_pl.utils.text import Neighbour, checked_sentences

EncodeTexts = Callable[[list[str]], Tensor]  # from n texts to vectors [n, dim]
VECTORS_FILE = "vectors.safetensors"
SENTENCES_FILE = "sentences.json"
IDS_FILE = "ids.json"  # in the order of the sentences
SETTINGS_FILE = "index.json"
MILLION = 1_000_000  # float32 rounds the seventh decimal of a similarity
_BLOCK = 4096  # queries and vectors that are compared at once, in about 256 MB
_COMPARED, _NEAR = 32, 0.99  # of vectors that are given: how many are compared, and the least cosine, as with bf16


@dataclass(eq=False)
class SentenceIndex:
    """Distinct sentences and their unit vectors.

    Examples:
        >>> index = SentenceIndex()
        >>> index.add(encode, captions)
        >>> index.search(encode, ["A man riding a small boat in a harbor."], top_k=3)
        >>> index.save("captions", {"encoder": "outputs/mine/encoder"})
    """

    sentences: list[str] = field(default_factory=list)  # distinct
    vectors: Tensor = field(default_factory=partial(torch.empty, 0))  # [n, dim] float32 on the CPU, of length 1
    prompt_name: str | None = None  # of the sentences
    ids: dict[str, int | str] = field(default_factory=dict)  # by sentence, if they have some

    def __len__(self) -> int:
        return len(self.sentences)

    def add(self, encode: EncodeTexts, sentences: Sequence[str], vectors: Tensor | None = None) -> int:
        """Encode and append the sentences that are not in the index, each once, and return their number.

        `vectors` are those that `encode` gave before, [n, dim], so that only a few are encoded to compare them.

        Raises:
            UserError: a vector is not finite, or `vectors` are not those of the sentences.
        """
        texts, known = checked_sentences(sentences), set(self.sentences)
        positions = {text: position for position, text in enumerate(texts) if text not in known}
        if new := list(positions):
            if vectors is None:
                units = _encode_to_unit(encode, new)
            else:
                _check_vectors(vectors, texts, encode)
                units = unit_vectors(vectors[list(positions.values())].float())
            self.vectors = torch.cat([self.vectors, finite(units)]) if known else finite(units)
            self.sentences = [*self.sentences, *new]
        return len(new)

    def search(
        self,
        encode: EncodeTexts,
        queries: Sequence[str],
        top_k: int = 3,
        threshold: float | None = None,
        leave_out_equal: bool = False,
        device: str | torch.device = "cpu",
    ) -> list[list[Neighbour]]:
        """Return the nearest sentences of every query, ordered by similarity, then by position.

        A zero vector has similarity 0 with every vector.

        Args:
            encode: returns the vectors [n, dim] of n sentences.
            queries: any number of sentences.
            top_k: maximum number of neighbours per query.
            threshold: minimum cosine similarity; None for no minimum.
            leave_out_equal: omit a sentence that equals the query, as in Table 8 of the paper.
            device: where vectors are compared, a block of them at a time.
        """
        queries = checked_sentences(queries)
        if not (queries and self.sentences):
            return [[] for _ in queries]
        results = []
        nearest = self._nearest(_encode_to_unit(encode, queries).to(device), top_k + leave_out_equal)
        for query, ranked in zip(queries, nearest, strict=True):
            near = [Neighbour(self.sentences[position], similarity) for position, similarity in ranked]
            near = [hit for hit in near if not (leave_out_equal and hit.sentence == query)]
            results.append([hit for hit in near[:top_k] if threshold is None or hit.similarity >= threshold])
        return results

    def _nearest(self, queries: Tensor, top_k: int) -> list[list[tuple[int, float]]]:
        """Return positions and similarities of the sentences that are nearest to unit vectors [queries, dim]."""
        results = []
        for part in queries.split(_BLOCK):
            blocks = []
            for start in range(0, len(self), _BLOCK):
                vectors = self.vectors[start : start + _BLOCK].to(part.device)
                similarities = in_millionths(part @ vectors.T)
                positions = highest(similarities, top_k)
                blocks.append((similarities.gather(1, positions), positions + start))
            similarities, positions = (torch.cat(tensors, dim=1).cpu() for tensors in zip(*blocks, strict=True))
            order = highest(similarities, top_k)
            cosines = similarities.gather(1, order).clamp(-MILLION, MILLION).double() / MILLION
            rows = zip(positions.gather(1, order).tolist(), cosines.tolist(), strict=True)
            results += [list(zip(*row, strict=True)) for row in rows]
        return results

    def save(self, folder: str | Path, settings: Mapping[str, Any]) -> None:
        """Write the sentences, their vectors, and the encoder's settings, which `load` compares."""
        saved = {"encoder": settings, "prompt_name": self.prompt_name}
        with atomic_write(folder, last=SETTINGS_FILE) as new:
            save_file({"vectors": self.vectors}, new / VECTORS_FILE)
            write_json(new / SENTENCES_FILE, self.sentences)
            write_json(new / IDS_FILE, [self.ids.get(sentence) for sentence in self.sentences])
            write_json(new / SETTINGS_FILE, saved)

    @classmethod
    def load(cls, folder: str | Path, settings: Mapping[str, Any]) -> "SentenceIndex":
        """Load what `save` wrote, for an encoder whose settings, except its name, equal the saved ones."""
        path = Path(folder) / SETTINGS_FILE
        finish_write(folder)
        with reraise_as(f"{folder} holds no index, or a damaged one"):
            saved, sentences = read_json(path), read_json(path.with_name(SENTENCES_FILE))
            vectors = read_weights(path.with_name(VECTORS_FILE))["vectors"]
            ids = read_json(path.with_name(IDS_FILE))
            index = cls(sentences, vectors, saved["prompt_name"])
        if not len(sentences) == len(vectors) == len(ids):
            numbers = f"{len(sentences)} sentences, {len(vectors)} vectors and {len(ids)} ids"
            raise UserError(f"{folder} has {numbers}: build it again")
        index.ids = {sentence: given for sentence, given in zip(sentences, ids, strict=True) if given is not None}
        for name, value in saved["encoder"].items():
            if name != "encoder" and settings.get(name) != value:
                differs = f"{name}={value}, but the encoder has {name}={settings.get(name)}"
                if name in ("weights", "computation"):  # hashes
                    differs = f"the encoder {saved['encoder'].get('encoder')}, whose {name} were others"
                advice = "load the encoder with the same settings, or build the index again"
                raise UserError(f"{folder} was built with {differs}: {advice}")
        return index


def in_millionths(similarities: Tensor) -> Tensor:
    """Return similarities in millionths, int32, so that most rounding errors do not order equal ones."""
    return (similarities * MILLION).round_().int()


def highest(scores: Tensor, count: int, allowed: Tensor | None = None) -> Tensor:
    """Return the positions of the highest integer scores in order, the first ones among equals.

    They are [rows, count] for scores [rows, n]; fewer if n is less. Those that are not `allowed` come last.
    """
    n = scores.shape[1]
    keys = scores.long() * n
    keys -= torch.arange(n, device=scores.device)  # all different: topk has one result
    if allowed is not None:
        keys.masked_fill_(~allowed, torch.iinfo(torch.int64).min)
    positions: Tensor = keys.topk(min(count, n), dim=1).indices
    return positions


def _encode_to_unit(encode: EncodeTexts, sentences: list[str]) -> Tensor:
    """Return [n, dim] float32 on the CPU."""
    return unit_vectors(encode(sentences).float().cpu())


def _check_vectors(vectors: Tensor, sentences: list[str], encode: EncodeTexts) -> None:
    """Raise UserError unless some of the vectors, [n, dim], are near to those of the encoder."""
    positions = range(0, len(sentences), -(-len(sentences) // _COMPARED))
    if len(vectors) != len(sentences):
        raise UserError(f"vectors: {len(vectors)} of {len(sentences)} sentences: give those of `encode` for this file")
    expected = _encode_to_unit(encode, [sentences[position] for position in positions])
    given = unit_vectors(vectors[list(positions)].float())
    if expected.shape != given.shape or not ((expected * given).sum(dim=1) > _NEAR).all():
        raise UserError("vectors: this encoder has others for these sentences, or for the prompt of the index")


class RetrievalTask:
    """Retrieval as in Table 8 of the paper. Queries and corpus are read and checked before an encoder is loaded.

    It is a task of an evaluation (see evaluation.suite.Task).

    Args:
        corpus: file of sentences (see data.rows.read_rows).
        queries: sentences to search for, or a file of them.
        column: column of the corpus by name or by position from 0, if it has several.
        top_k: maximum number of neighbours per query.
    """

    name = "retrieval"

    def __init__(
        self, corpus: str | Path, queries: Sequence[str] | str, column: int | str | None = None, top_k: PositiveInt = 3
    ) -> None:
        self._name, self._top_k = str(corpus), top_k
        self._corpus = list(dict.fromkeys(iterate_sentences(corpus, column)))
        self._queries = list(iterate_sentences(queries)) if isinstance(queries, str) else list(queries)

    def __call__(self, encode: Encode, device: object = None) -> RetrievalResults:
        """Return the neighbours of every query."""
        index = SentenceIndex()
        index.add(partial(encode, prompt_name=DOCUMENT), self._corpus)
        nearest = index.search(partial(encode, prompt_name=QUERY), self._queries, self._top_k, leave_out_equal=True)
        pairs = zip(self._queries, nearest, strict=True)
        queries = [QueryResults(query=query, neighbours=neighbours) for query, neighbours in pairs]
        return RetrievalResults(corpus=self._name, sentences=len(self._corpus), queries=queries)
