"""Rows that are read and tokenized while they are trained on, of data that need not fit the disk."""

import hashlib
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from simcse_pl.data.collator import TrainingRows
from simcse_pl.data.formats import Layout, Records
from simcse_pl.data.hub_datasets import label_words, load_hub_dataset, table_of
from simcse_pl.data.rows import LabelledRows, rows_of
from simcse_pl.data.sampler import ContrastiveBatches
from simcse_pl.data.sources import Source, files_of, open_source, records_of
from simcse_pl.data.tables import with_words
from simcse_pl.data.token_cache import Block, TokenCache, Tokenize

log = logging.getLogger(__name__)

_READ_AT_ONCE = 256  # rows


class RowStream:
    """The rows of files, or of a data set on the Hub, in a random order without end.

    `datasets` shuffles the files and, in a buffer, their rows, by the seed and the pass over the data.

    Args:
        source, split, layout, options: what is read, and how (see sources.open_source and rows.rows_of).
        tokenize: tokenizes the rows.
        shuffled: the number of rows in the buffer.
        seed: seed of the order.

    Attributes:
        fingerprint: the names and sizes of the files, hashed.
    """

    def __init__(
        self,
        source: Source,
        split: str,
        layout: Layout,
        options: Mapping[str, Any],
        tokenize: Tokenize,
        shuffled: int,
        seed: int,
    ) -> None:
        import datasets  # slow to import

        self._options, self._tokenize, self._shuffled, self._seed = options, tokenize, shuffled, seed
        place = files_of(source)
        self._words: Mapping[int, Sequence[str]] = {}
        content: Any = place, split
        if isinstance(place, str):
            self._dataset = load_hub_dataset(place, split, streaming=True)
            table, self._words = table_of(self._dataset, place), label_words(self._dataset)
        else:
            table = open_source(place[0], layout)
            given = {"paths": place, "layout": layout, "columns": (table.width, table.header)}
            self._dataset = datasets.IterableDataset.from_generator(_named_records, gen_kwargs=given)
            content = [(path.name, path.stat().st_size) for path in place]
        self._table = replace(table, records=iter(()))
        self.fingerprint = hashlib.sha256(repr(content).encode()).hexdigest()

    def first(self, count: int) -> TokenCache:
        """Return the first rows in the order of the files; warn if the tokenizer does not know their text."""
        rows, _, _, unknown = self._tokenize[list(itertools.islice(self._rows(self._dataset), count))]
        if unknown:
            log.warning(unknown)
        return TokenCache(rows, self.fingerprint, self.fingerprint)

    def tokenized(self, block: Block) -> TokenCache:
        """Return rows with their tokens."""
        return TokenCache(self._tokenize[block][0])

    def share(self, number: int, shares: int) -> LabelledRows:
        """Yield the rows of a share, in a new order in each pass, without end.

        If the number of files is a multiple of that of the shares, a share has some of the files. If not, it has
        each `shares`-th row, and reads all files.
        """
        from datasets.distributed import split_dataset_by_node  # slow to import

        for epoch in itertools.count():
            shuffled = self._dataset.shuffle(seed=self._seed, buffer_size=self._shuffled)
            share = split_dataset_by_node(shuffled, number, shares)
            share.set_epoch(epoch)
            yield from self._rows(share)

    def _rows(self, dataset: Any) -> LabelledRows:
        return rows_of(replace(self._table, records=self._records(dataset)), **self._options)

    def _records(self, dataset: Any) -> Records:
        """Yield the records of a data set; `iter` does not share the rows among workers once more."""
        for block in dataset.iter(_READ_AT_ONCE):
            if block.keys() == {"place", "cells"}:
                yield from zip(block["place"], block["cells"], strict=True)
            else:
                yield from (("a row", with_words([*cells], self._words)) for cells in zip(*block.values(), strict=True))


def _named_records(**given: Any) -> Iterator[dict[str, Any]]:
    yield from ({"place": place, "cells": cells} for place, cells in records_of(**given))


class StreamedBatches(IterableDataset[dict[str, Any]]):
    """This rank's part of each contrastive batch of a stream, without end, also by several workers.

    Each worker of each rank reads its share of the rows. A resumed run reads the rows that are done again, and leaves
    them out before they are tokenized.

    Args:
        rows: what has been read of the stream.
        batch_size: the rows of a batch, over all ranks together.
        ranks, rank: the number of ranks, and the rank of this process.
        start: the number of batches that are done.
    """

    def __init__(self, rows: TrainingRows, batch_size: int, ranks: int = 1, rank: int = 0, start: int = 0) -> None:
        self.rows, self.rank, self.start = rows, rank, start
        _, self.counts = next(ContrastiveBatches(batch_size, batch_size, ranks).draw(0))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        done, turn = divmod(self.start + number, workers)  # worker 0 makes the next batch
        share, shares = self.rank * workers + turn, len(self.counts) * workers
        size = self.counts[self.rank]
        stream = self.rows.stream
        assert stream is not None
        rows = itertools.islice(stream.share(share, shares), done * size, None)
        for batch in itertools.count(self.start + number, workers):
            own = replace(self.rows, cache=stream.tokenized(list(itertools.islice(rows, size))), chosen=range(size))
            yield own.batch([(batch, row) for row in range(size)]) | {"counts": self.counts}
