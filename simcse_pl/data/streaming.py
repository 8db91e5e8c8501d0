"""Rows that are read and tokenized while they are trained on, of data that need not fit the disk."""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.readers.formats import OpenedTable, Records, open_table
from simcse_pl.data.readers.layout import Layout
from simcse_pl.data.readers.row_reader import NamedRows, Row, rows_of
from simcse_pl.data.readers.sources import (
    Source,
    label_words,
    load_hub_dataset,
    locate,
    open_source,
    table_of,
    with_header,
    with_words,
)
from simcse_pl.models.tokenization import Tokens, tokenize
from simcse_pl.utils.errors import UserError

_READ_AT_ONCE = 256  # rows


@dataclass(frozen=True)
class RowStream:
    """The rows of files, or of a data set on the Hub, in a random order without end.

    `datasets` shuffles the files and, in a buffer, their rows, by the seed and the pass over the data.

    Args:
        table: how the rows are written.
        dataset: the IterableDataset, before it is shuffled.
        words: the names of the labels of a data set on the Hub.
        reading: the arguments of `rows_of`.
        shuffled: the number of rows in the buffer.
        seed: seed of the order.
        fingerprint: the names and sizes of the files, hashed.
    """

    table: OpenedTable
    dataset: Any
    words: Mapping[int, Sequence[str]]
    reading: tuple[Any, ...]
    shuffled: int
    seed: int
    fingerprint: str

    def first(self, count: int) -> list[tuple[Row, str | None]]:
        """Return the first rows in the order of the files."""
        return list(itertools.islice(self._rows(self.dataset), count))

    def share(self, number: int, shares: int) -> NamedRows:
        """Yield the rows of a share, in a new order in each pass, without end.

        If the number of files is a multiple of that of the shares, a share has some of the files. If not, it has
        each `shares`-th row, and reads all files.
        """
        from datasets.distributed import split_dataset_by_node  # slow to import

        for epoch in itertools.count():
            shuffled = self.dataset.shuffle(seed=self.seed, buffer_size=self.shuffled)
            share = split_dataset_by_node(shuffled, number, shares)
            share.set_epoch(epoch)
            yield from self._rows(share)

    def _rows(self, dataset: Any) -> NamedRows:
        return rows_of(replace(self.table, records=self._records(dataset)), *self.reading)

    def _records(self, dataset: Any) -> Records:
        """Yield the records of a data set; `iter` does not share the rows among workers once more."""
        for block in dataset.iter(_READ_AT_ONCE):
            if block.keys() == {"place", "cells"}:
                yield from zip(block["place"], block["cells"], strict=True)
            else:
                yield from (("a row", with_words([*cells], self.words)) for cells in zip(*block.values(), strict=True))


def open_stream(
    source: Source,
    split: str,
    layout: Layout,
    columns: Sequence[Any],
    reading: tuple[Any, ...],
    shuffled: int,
    seed: int,
) -> RowStream:
    """Open files or a data set on the Hub; for the arguments, see `open_source` and RowStream."""
    import datasets  # slow to import

    place = locate(source)
    content: tuple[Any, ...]
    if isinstance(place, str):
        dataset = load_hub_dataset(place, split, streaming=True)
        table, words, content = table_of(dataset, str(source)), label_words(dataset), (place, split)
    else:
        table, words = open_source(place[0], layout, columns=columns), {}
        how = {"paths": place, "layout": with_header(layout, columns), "columns": (table.width, table.header)}
        dataset = datasets.IterableDataset.from_generator(_records_of_files, gen_kwargs=how)
        content = tuple((path.name, path.stat().st_size) for path in place)
    key = hashlib.sha256(repr(content).encode()).hexdigest()
    return RowStream(replace(table, records=iter(())), dataset, words, reading, shuffled, seed, key)


def _records_of_files(paths: list[Path], layout: Layout, columns: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    for path in paths:
        table = open_table(path, layout)
        if (table.width, table.header) != columns:
            raise UserError(f"{path} has {table.layout}, but the first file has {columns[0]} columns")
        yield from ({"place": f"{path.name}, {place}", "cells": cells} for place, cells in table.records)


class HeldRows(Sequence[Row]):
    """Some rows in memory, by their numbers, with what a TokenCache has of rows.

    Args:
        tokenizer: tokenizes the sentences.
        max_length: the maximum number of tokens of a sentence, special tokens included.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        self._tokenizer, self._max_length = tokenizer, max_length
        self._rows: dict[int, tuple[Row, str | None, tuple[Tokens, ...]]] = {}

    def hold(self, rows: Mapping[int, tuple[Row, str | None]]) -> list[list[int]]:
        """Replace the rows, and return the tokens of the new ones."""
        ids = tokenize(self._tokenizer, [text for row, _ in rows.values() for text in row], self._max_length)
        left = iter(map(np.array, ids))
        self._rows = {number: (row, name, tuple(next(left) for _ in row)) for number, (row, name) in rows.items()}
        return ids

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: Any) -> Any:
        return self._rows[row][0]

    def name(self, row: int) -> str | None:
        """Return the label, or the score as text, of a row."""
        return self._rows[row][1]

    def tokens(self, row: int) -> tuple[Tokens, ...]:
        """Return the tokens of each sentence of a row."""
        return self._rows[row][2]


class StreamedBatches(IterableDataset[dict[str, Any]]):
    """This rank's part of each contrastive batch of a stream, without end, also by several workers.

    Each worker of each rank reads its share of the rows. A resumed run reads the rows that are done again, and leaves
    them out before they are tokenized.

    Args:
        stream: the rows.
        make: from rows by their numbers to a batch.
        counts: the number of rows of a batch on each rank.
        rank: the rank of this process.
        start: the number of batches that are done.
    """

    def __init__(
        self,
        stream: RowStream,
        make: Callable[[Mapping[int, tuple[Row, str | None]]], dict[str, Any]],
        counts: tuple[int, ...],
        rank: int,
        start: int = 0,
    ) -> None:
        self.stream, self.make, self.counts, self.rank, self.start = stream, make, counts, rank, start

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        done, turn = divmod(self.start + number, workers)  # worker 0 makes the next batch
        share, shares = self.rank * workers + turn, len(self.counts) * workers
        size = self.counts[self.rank]
        rows = itertools.islice(enumerate(self.stream.share(share, shares)), done * size, None)
        while True:
            numbered = {place * shares + share: row for place, row in itertools.islice(rows, size)}
            yield self.make(numbered) | {"counts": self.counts}
