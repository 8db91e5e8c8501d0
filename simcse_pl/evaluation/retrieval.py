"""Retrieval as in Table 8 of the paper: the sentences of a corpus nearest to a query."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import PositiveInt

from simcse_pl.data.readers.row_reader import iterate_sentences
from simcse_pl.inference.sentence_index import SentenceIndex
from simcse_pl.results.evaluation_results import QueryResults, RetrievalResults
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import Encode


class RetrievalTask:
    """Queries and a corpus; they are read and checked before an encoder is loaded.

    Args:
        corpus: file of sentences (see data.readers.read_rows).
        queries: sentences to search for, or a file of them.
        column: column of the corpus by name or by position from 0, if it has several.
        top_k: maximum number of neighbours per query.

    Raises:
        UserError: a file does not exist or is damaged, or there are no queries.
    """

    def __init__(
        self,
        corpus: str | Path,
        queries: Sequence[str] | str,
        column: int | str | None = None,
        top_k: PositiveInt = 3,
    ) -> None:
        self._name, self._top_k = str(corpus), top_k
        self._corpus = list(dict.fromkeys(iterate_sentences(corpus, column)))
        self._queries = list(iterate_sentences(queries)) if isinstance(queries, str) else list(queries)
        if not self._queries:
            raise UserError("retrieval.queries is empty: give sentences, [A man rides a horse.], or a file of them")

    def __call__(self, encode: Encode) -> RetrievalResults:
        """Return the neighbours of every query."""
        found = SentenceIndex.build(encode, self._corpus).search(self._queries, self._top_k, leave_out_equal=True)
        queries = [QueryResults(query=query, neighbours=near) for query, near in zip(self._queries, found, strict=True)]
        return RetrievalResults(corpus=self._name, sentences=len(self._corpus), queries=queries)
