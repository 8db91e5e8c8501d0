"""The rows of a source and their tokens, read and tokenized once, then mapped from a file in the user's cache.

Memory hardly grows with the number of rows. A second start reads neither the source nor all of the rows
(benchmarks/data.py).
"""

import hashlib
import itertools
import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.layout import Layout
from simcse_pl.data.rows import NamedRows, Row, Warn, documents_of, rows_of
from simcse_pl.data.sources import Source, fingerprint, open_source
from simcse_pl.models.tokenization import tokenize, unknown_text
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import cached, read_json, write_json
from simcse_pl.utils.processes import available_cpus
from simcse_pl.utils.terminal import counter
from simcse_pl.utils.types import Tokens

log = logging.getLogger(__name__)

Read = Callable[[Warn], NamedRows]
Block = list[tuple[Row, str | None]]
# The rows with the columns of _SCHEMA, the number of sentences, how many may be truncated, and a warning or None.
TokenizedBlock = tuple[pyarrow.RecordBatch, int, int, str | None]

_FORMAT = 3
_ROWS_A_BLOCK = 4096
_BLOCKS_ALONE = 64  # are tokenized by this process, before it starts others
_MOST_PROCESSES = 16  # more would wait for the one that reads
_ROWS, _MANIFEST = "rows.arrow", "manifest.json"
_SCHEMA = pyarrow.schema(
    {
        "sentences": pyarrow.list_(pyarrow.string()),
        "tokens": pyarrow.list_(pyarrow.list_(pyarrow.int32())),
        "name": pyarrow.string(),
    }
)


@dataclass(frozen=True)
class Tokenize(Dataset[TokenizedBlock]):
    """Tokenizes rows, also in worker processes of a DataLoader."""

    tokenizer: PreTrainedTokenizerBase
    max_length: int

    def __getitem__(self, block: Block) -> TokenizedBlock:
        tokens = tokenize(self.tokenizer, [sentence for row, _ in block for sentence in row], self.max_length)
        left = iter(tokens)
        columns = [
            [row for row, _ in block],
            [[next(left) for _ in row] for row, _ in block],
            [name for _, name in block],
        ]
        full = sum(len(ids) >= self.max_length for ids in tokens)
        rows = pyarrow.record_batch(columns, schema=_SCHEMA)
        return rows, len(tokens), full, unknown_text(self.tokenizer, tokens)


class TokenCache(Sequence[Row]):
    """Rows of sentences, mapped from an Arrow file, or streamed. Worker processes map the file rather than copy it."""

    def __init__(self, source: Path | pyarrow.RecordBatch) -> None:
        self._source = source

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenCache, (self._source,)

    @cached_property
    def _table(self) -> pyarrow.Table:
        if isinstance(self._source, pyarrow.RecordBatch):
            return pyarrow.Table.from_batches([self._source])
        return pyarrow.ipc.open_file(pyarrow.memory_map(str(self._source))).read_all()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, row: Any) -> Any:  # no slices
        """Return the sentences of a row, counted from 0."""
        return tuple(self._table["sentences"][row].as_py())

    def tokens(self, row: int) -> tuple[Tokens, ...]:
        """Return the tokens of each sentence of a row."""
        return tuple([sentence.values.to_numpy() for sentence in self._table["tokens"][row]])

    def name(self, row: int) -> Any:
        """Return the label, the scores as text, or the document's name, of a row."""
        return self._table["name"][row].as_py()

    def count(self, wanted: Collection[str]) -> int:
        """Return how many of the sentences are in `wanted`."""

        def count() -> int:
            values = pyarrow.array(list(wanted), pyarrow.string())
            chunks = self._table["sentences"].iterchunks()
            return sum(pyarrow.compute.is_in(chunk.flatten(), values).true_count for chunk in chunks)

        return int(self._computed("count", count, sorted(wanted)))

    def classes(self) -> list[str]:
        """Return the distinct labels, sorted."""
        return list(self._computed("classes", lambda: sorted(self._table["name"].unique().to_pylist())))

    def score_range(self) -> tuple[float, float]:
        """Return the lowest and the highest score."""

        def limits_of_all() -> Any:
            scores = pyarrow.compute.list_flatten(pyarrow.compute.split_pattern(self._table["name"], " "))
            return pyarrow.compute.min_max(scores.cast(pyarrow.float64())).as_py()

        limits = self._computed("score_range", limits_of_all)
        return limits["min"], limits["max"]

    def following(self, row: int, count: int) -> tuple[str, ...]:
        """Return the next sentences after a row, at most `count`, of the same document."""
        near = range(row + 1, min(row + 1 + count, len(self)))
        same = itertools.takewhile(lambda other: self.name(other) == self.name(row), near)
        return tuple(self[other][0] for other in same)

    def last_of_documents(self) -> NDArray[np.int64]:
        """Return the last row of each document."""
        names = self._table["name"]
        ends = pyarrow.compute.not_equal(names.slice(0, len(self) - 1), names.slice(1))
        return np.append(np.flatnonzero(ends.to_numpy()), len(self) - 1)

    def _computed(self, name: str, compute: Callable[[], Any], key: Any = None) -> Any:
        """Return what is computed from all rows, from the user's cache if it is there."""
        file = f"{name}.json"
        whole_key = self._source.parent.name, name, key
        return read_json(cached("row_counts", whole_key, file, lambda new: write_json(new / file, compute())) / file)


@dataclass(frozen=True)
class Reading:
    """The source of a training set, and how it is read."""

    source: Source
    split: str
    layout: Layout
    documents: bool  # whether the rows are sentences in documents
    options: Mapping[str, Any]  # of `rows_of`

    def open_cache(self, make: Tokenize, processes: int | None) -> tuple[TokenCache, str, str]:
        """Return the rows with their tokens, the fingerprint of the source, and a text that changes with the rows."""
        table = open_source(self.source, self.layout, self.split)
        before = fingerprint(self.source, self.split)

        def read(warn: Warn) -> NamedRows:
            if self.documents:
                yield from documents_of(table, self.options["on_invalid_row"], warn)
            else:
                yield from rows_of(table, **self.options, warn=warn)
            if fingerprint(self.source, self.split) != before:
                raise UserError(f"{self.source} changed while it was read: start again")

        key = before, table.layout, self.layout.encoding, self.documents, *self.options.values()
        return open_token_cache(read, key, make, processes), before, repr(key)


def open_token_cache(read: Read, key: Sequence[Any], make: Tokenize, processes: int | None = None) -> TokenCache:
    """Open rows from the user's cache; read and tokenize them first if they are not in the cache.

    Args:
        read: takes a function to call with warnings, and returns the rows. It is called only if the cache lacks them.
        key: everything that determines the rows, including the fingerprint of their source.
        make: tokenizes the sentences.
        processes: the number of further processes that tokenize; None for one for each CPU, but at most 16, if there
            are more than 262,144 rows. The file does not depend on it.
    """
    tokenizer = make.tokenizer
    settings: Any = [type(tokenizer).__name__, sorted(tokenizer.get_vocab().items()), repr(tokenizer.init_kwargs)]
    if tokenizer.is_fast:
        settings = json.loads(tokenizer.backend_tokenizer.to_str())
        settings.pop("truncation"), settings.pop("padding")  # of its last call
    fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
    whole_key = _FORMAT, key, fingerprint, make.max_length
    folder = cached("corpora", whole_key, _MANIFEST, lambda new: _write(new, read, make, processes))
    for warning in read_json(folder / _MANIFEST)["warnings"]:
        log.warning(warning)
    return TokenCache(folder / _ROWS)


def _tokenized(blocks: Iterator[Block], make: Tokenize, processes: int | None) -> Iterator[TokenizedBlock]:
    """Yield the blocks in order, tokenized by further processes."""
    if processes is None:
        yield from map(make.__getitem__, itertools.islice(blocks, _BLOCKS_ALONE))
        if not (first := list(itertools.islice(blocks, 1))):
            return  # starting processes costs more than they would save
        blocks = itertools.chain(first, blocks)
        cpus = available_cpus()
        processes = min(cpus, _MOST_PROCESSES) if cpus > 1 else 0
    loader: Iterable[TokenizedBlock] = DataLoader(
        make,
        batch_size=None,
        sampler=blocks,  # type: ignore[arg-type]
        collate_fn=tuple,  # the block as it is
        num_workers=processes,
        worker_init_fn=_one_thread,
    )
    yield from loader


def _one_thread(worker: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _write(new: Path, read: Read, make: Tokenize, processes: int | None) -> None:
    """Write the rows, then the manifest with the warnings to log at every start."""
    warnings: list[str] = []
    rows = read(warnings.append)
    blocks = iter(lambda: list(itertools.islice(rows, _ROWS_A_BLOCK)), [])
    sentences = full = 0
    with counter("tokenizing", " rows") as bar, pyarrow.ipc.new_file(str(new / _ROWS), _SCHEMA) as file:
        task = bar.add_task("", total=None)
        for block, in_block, full_in_block, unknown in _tokenized(blocks, make, processes):
            sentences += in_block
            full += full_in_block
            if unknown and unknown not in warnings:
                warnings.append(unknown)
            file.write(block)
            bar.advance(task, block.num_rows)
    if full:
        rate = f"{full / sentences:.2%} of the sentences"
        warnings.append(f"{rate} have data.max_length={make.max_length} tokens or more, and are truncated to that")
    write_json(new / _MANIFEST, {"warnings": warnings})
