"""Retrieval as in the paper's Table 8: the sentences of a corpus that are nearest to a query."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simcse_pl.data.readers.row_reader import read_sentences
from simcse_pl.inference.sentence_index import SETTINGS_FILE, SentenceIndex
from simcse_pl.models.protocols import Encode
from simcse_pl.utils.errors import UserError


@dataclass(frozen=True)
class Retrieved:
    """A query and its nearest neighbours (sentence, similarity), the nearest first."""

    query: str
    neighbours: list[dict[str, Any]]


@dataclass(frozen=True)
class RetrievalResult:
    """What was found in a corpus.

    Args:
        corpus: what the corpus is called.
        sentences: how many distinct ones it has.
        queries: one after the other, as asked.
    """

    corpus: str
    sentences: int
    queries: list[Retrieved]


class Search:
    """Queries to a corpus, read and checked before an encoder is there to run them.

    Args:
        corpus: a file of sentences (see data.readers.read_rows).
        queries: the sentences to search for, or a file of them.
        column: of the corpus, where it has several: its name, or its position from 0.
        count: the most neighbours of a query.
        folder: keeps the index; where it is there already, only the queries are encoded.

    Raises:
        UserError: a file that is missing or damaged, no queries, or a value out of range; when called, a folder that
            holds another index than is asked for.
    """

    def __init__(
        self,
        corpus: str | Path,
        queries: Sequence[str] | str,
        column: int | str | None = None,
        count: int = 3,
        folder: str | Path | None = None,
    ) -> None:
        if count < 1:
            raise UserError(f"retrieval.count={count}: it must be at least 1")
        if folder and Path(folder).exists() and not Path(folder).is_dir():
            raise UserError(f"retrieval.folder={folder}: it is a file; name a folder to keep the index in")
        self._name = str(corpus)
        self._corpus = list(dict.fromkeys(read_sentences(corpus, column)))
        self._queries = read_sentences(queries) if isinstance(queries, str) else list(queries)
        if not self._queries:
            raise UserError("retrieval.queries is empty: give sentences, [A man rides a horse.], or a file of them")
        self._count = count
        self._folder = folder

    def __call__(self, encode: Encode) -> RetrievalResult:
        """The neighbours of every query.

        Args:
            encode: sentences to vectors [n, dim].
        """
        index = self._index(encode)
        found = index.search(self._queries, self._count, leave_out_equal=True)
        queries = [
            Retrieved(query, [one._asdict() for one in neighbours])
            for query, neighbours in zip(self._queries, found, strict=True)
        ]
        return RetrievalResult(self._name, len(index), queries)

    def _index(self, encode: Encode) -> SentenceIndex:
        if self._folder and (Path(self._folder) / SETTINGS_FILE).is_file():
            index = SentenceIndex.load(self._folder, encode)
            if index.sentences != self._corpus:
                raise UserError(f"retrieval.folder: {self._folder} holds an index of another corpus")
            return index
        index = SentenceIndex.build(encode, self._corpus)
        if self._folder:
            index.save(self._folder)
        return index
