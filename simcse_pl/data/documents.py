"""Text whose sentences follow each other in documents, and the view of one of the next sentences."""

import itertools
import logging
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute
from numpy.typing import NDArray
from pydantic import PositiveInt

from simcse_pl.data.formats import TEXT, OpenedTable, Records
from simcse_pl.data.rows import LabelledRows, Warn, valid_rows
from simcse_pl.data.view import SentenceView, ViewInput
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Role

if TYPE_CHECKING:
    from simcse_pl.data.token_cache import TokenCache

log = logging.getLogger(__name__)


def documents_of(table: OpenedTable, on_invalid_row: str = "error", warn: Warn = log.warning) -> LabelledRows:
    """Return an iterator over the sentences of text files in order, rows of one; the label numbers the document.

    Args:
        table: from `open_source`: one sentence per line, a blank line between documents. Each file begins another one.
        on_invalid_row, warn: see `rows_of`.
    """
    if table.layout != TEXT:
        needed = "a .txt file with one sentence per line and a blank line between documents"
        raise UserError(f"{table.source} does not show which sentences follow each other in a document: give {needed}")

    def records() -> Records:
        document, last = 0, ("", -1)
        for location, cells in table.records:
            file, _, line = location.rpartition(" ")
            number = int(line)
            document, last = document + (last != (file, number - 1)), (file, number)
            yield location, [*cells, str(document)]

    return valid_rows(OpenedTable(table.source, records(), 2), [0], itemgetter(1), on_invalid_row, warn)


def with_next_sentence(cache: "TokenCache") -> NDArray[np.uint32]:
    """Return the rows that have a next sentence in their document."""
    documents, count = cache.table["label"], len(cache)
    same = pyarrow.compute.equal(documents.slice(0, count - 1), documents.slice(1))
    rows = np.flatnonzero(same.to_numpy()).astype(np.uint32)
    if cache.label(0) == cache.label(count - 1):
        log.warning("train: the file has no blank lines between documents, so all its lines are one document")
    left_out = count - len(rows)
    log.info("train: %d of %d sentences are left out, because no sentence follows them", left_out, count)
    return rows


def next_sentences(cache: "TokenCache", row: int, count: int) -> tuple[str, ...]:
    """Return the next sentences after a row, at most `count`, of the same document."""
    near = range(row + 1, min(row + 1 + count, len(cache)))
    same = itertools.takewhile(lambda other: cache.label(other) == cache.label(row), near)
    return tuple(cache[other][0] for other in same)


class OneOfNextSentences(SentenceView):
    """One of the next sentences of the document, at random (Table 2; Logeswaran and Lee 2018).

    Args:
        n: the number of next sentences to choose from, 1 or 3 in the paper; fewer before the end of a document.
        role: see View.
    """

    def __init__(self, n: PositiveInt = 1, role: Role = Role.POSITIVE) -> None:
        super().__init__(role)
        self.num_following = n

    def make(self, source: ViewInput) -> str:
        return source.random.choice(source.following)
