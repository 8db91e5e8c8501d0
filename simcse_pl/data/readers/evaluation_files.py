"""Rows of validation and test files: scored pairs, and queries with their positives."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from simcse_pl.data.readers.formats import OpenedTable
from simcse_pl.data.readers.labels import Names
from simcse_pl.data.readers.layout import Layout
from simcse_pl.data.readers.row_reader import NamedRows, rows_of
from simcse_pl.data.readers.sources import open_source
from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class EvaluationFile(Layout):
    """A file, and how to read it.

    Args:
        file: the file, or a dataset of the hub.
        columns: the columns to read, by name or by position from 0; None for the first ones.
        split: the split of a dataset of the hub; by default, an evaluator reads the one that is measured.
        label_names: the words for the labels 0, 1, ...; None for numbers and the words that are known.
        format, separator, header, encoding: how the file is written; see Layout.
    """

    file: str
    columns: Sequence[int | str] | None = None
    split: str = "test"
    label_names: Names = None

    def pairs(self, score: bool = False) -> NamedRows:
        """Return an iterator over pairs of sentences, each with its score or the number of its label, if asked for.

        With `score`, a column of scores or labels follows those of the sentences. The errors are those of `rows_of`.
        """
        table, columns = self._open(), self.columns or range(2 + score)
        if len(columns) < 2 + score:
            raise UserError(f"{self.file}: columns={[*columns]}: name two of sentences{' and one of scores' * score}")
        if self.columns:  # rows may differ in the others
            table = _resized(table, table.width)
        options: dict[str, Any] = {"score_column": columns[2], "label_names": self.label_names} if score else {}
        return rows_of(table, columns[:2], **options)

    def rows(self) -> NamedRows:
        """Return an iterator over rows of sentences. Their number may differ; a sentence that is missing is ''."""
        table = self._open()
        records = list(table.records)
        width = max([table.width, *(len(cells) for _, cells in records if not isinstance(cells, str))])
        table = _resized(replace(table, records=iter(records)), width)
        return rows_of(table, self.columns, on_invalid_row="blank", warn=log.debug)

    def _open(self) -> OpenedTable:
        return open_source(self.file, self, self.split, self.columns or ())


def _resized(table: OpenedTable, width: int) -> OpenedTable:
    """Return a table whose rows are cut to a width, or filled up with empty cells."""

    def resized(cells: Sequence[Any] | str) -> Sequence[Any] | str:
        return cells if isinstance(cells, str) else [*cells, *[""] * (width - len(cells))][:width]

    records = ((place, resized(cells)) for place, cells in table.records)
    header = table.header and [*table.header, *[""] * (width - table.width)]
    return replace(table, records=records, width=width, header=header)
