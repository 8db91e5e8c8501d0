"""Retrieval as in Table 8 of the paper: the sentences of a corpus nearest to a query."""

from collections.abc import Sequence
from pathlib import Path

from simcse_pl.data.readers.row_reader import read_sentences
from simcse_pl.inference.sentence_index import SETTINGS_FILE, SentenceIndex
from simcse_pl.models.protocols import Encode
from simcse_pl.results.evaluation_results import Neighbour, Query, Retrieval
from simcse_pl.utils.errors import UserError


class RetrievalTask:
    """Queries and a corpus; they are read and checked before an encoder is loaded.

    Args:
        corpus: file of sentences (see data.readers.read_rows).
        queries: sentences to search for, or a file of them.
        column: column of the corpus by name or by position from 0, if it has several.
        top_k: maximum number of neighbours per query.
        folder: folder to save the index in. If it holds the index already, only the queries are encoded.

    Raises:
        UserError: a file does not exist or is damaged, there are no queries, or a value is out of range. When called:
            the folder holds an index of another corpus or encoder.
    """

    def __init__(
        self,
        corpus: str | Path,
        queries: Sequence[str] | str,
        column: int | str | None = None,
        top_k: int = 3,
        folder: str | Path | None = None,
    ) -> None:
        if top_k < 1:
            raise UserError(f"retrieval.top_k={top_k}: it must be at least 1")
        if folder and Path(folder).is_file():
            raise UserError(f"retrieval.folder={folder}: it is a file; name a folder to keep the index in")
        self._name, self._top_k, self._folder = str(corpus), top_k, folder
        self._corpus = list(dict.fromkeys(read_sentences(corpus, column)))
        self._queries = read_sentences(queries) if isinstance(queries, str) else list(queries)
        if not self._queries:
            raise UserError("retrieval.queries is empty: give sentences, [A man rides a horse.], or a file of them")

    def __call__(self, encode: Encode) -> Retrieval:
        """Return the neighbours of every query."""
        found = self._index(encode).search(self._queries, self._top_k, leave_out_equal=True)
        queries = [
            Query(query=query, neighbours=[Neighbour(**near._asdict()) for near in neighbours])
            for query, neighbours in zip(self._queries, found, strict=True)
        ]
        return Retrieval(corpus=self._name, sentences=len(self._corpus), queries=queries)

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
