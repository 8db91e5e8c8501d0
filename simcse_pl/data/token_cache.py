"""The rows of a source and their tokens, read and tokenized once, then mapped from a file in the user's cache.

Memory hardly grows with the number of rows. A second start reads neither the source nor all of the rows
(benchmarks/data.py).
"""

import hashlib
import itertools
import json
import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.rows import LabelledRows, Row, Warn
from simcse_pl.models.tokenization import length_at, tokenize, tokenize_rows, unknown_text
from simcse_pl.utils.errors import reraise_as
from simcse_pl.utils.files import cached, read_json, write_json
from simcse_pl.utils.processes import available_cpus
from simcse_pl.utils.terminal import tracked
from simcse_pl.utils.types import Label, LabelKind, Tokens

log = logging.getLogger(__name__)

Read = Callable[[Warn], LabelledRows]
Block = list[tuple[Row, Label | None]]
# The columns of Tokenize.schema, the number of sentences, how many may be truncated, and a warning or None.
TokenizedBlock = tuple[pyarrow.RecordBatch, int, int, str | None]

_FORMAT = 7  # changes with what is read, too
_ROWS_A_BLOCK = 4096  # of a file: _FORMAT changes with it
_BLOCKS_ALONE = 64  # blocks that this process tokenizes before it starts others
_MOST_PROCESSES = 16  # more would wait for the process that reads
_ROWS, _MANIFEST = "rows.arrow", "manifest.json"
# Classes are text until all of them are known; so are the documents of rows without labels.
_LABELS = {"scores": pyarrow.float32(), "score_lists": pyarrow.list_(pyarrow.float32())}


@dataclass(frozen=True)
class Tokenize(Dataset[TokenizedBlock]):
    """Tokenizes rows, also in worker processes of a DataLoader."""

    tokenizer: PreTrainedTokenizerBase
    max_length: int | Sequence[int]
    labels: LabelKind | None = None
    are_candidates: bool = False  # the label is the number of positives; the lengths are for each role

    @property
    def schema(self) -> pyarrow.Schema:
        """The types of the columns."""
        sentences, tokens = pyarrow.list_(pyarrow.string()), pyarrow.list_(pyarrow.list_(pyarrow.int32()))
        label = _LABELS.get(self.labels or "", pyarrow.string())
        return pyarrow.schema({"sentences": sentences, "tokens": tokens, "label": label})

    def __getitem__(self, block: Block) -> TokenizedBlock:
        sentences = [sentence for row, _ in block for sentence in row]
        positions = [position for row, _ in block for position in range(len(row))]
        if self.are_candidates:
            counts = ((int(str(positives)), len(row) - 1) for row, positives in block)
            positions = [i for positives, others in counts for i in (0, *[1] * positives, *[2] * (others - positives))]
        tokens = tokenize_rows(partial(tokenize, self.tokenizer), sentences, self.max_length, positions)
        left = iter(tokens)
        columns = [
            [row for row, _ in block],
            [[next(left) for _ in row] for row, _ in block],
            [label for _, label in block],
        ]
        limits = (length_at(self.max_length, position) for position in positions)
        full = sum(len(ids) >= limit for ids, limit in zip(tokens, limits, strict=True))
        rows = pyarrow.record_batch(columns, schema=self.schema)
        return rows, len(tokens), full, unknown_text(self.tokenizer, tokens)


class TokenCache(Sequence[Row]):
    """Rows of sentences, mapped from an Arrow file. Worker processes map the file rather than copy it.

    Args:
        file: the Arrow file.
        fingerprint: a hash of the content of the source.
        key: a text that changes with the rows.
    """

    def __init__(self, file: Path, fingerprint: str = "", key: str = "") -> None:
        self.file, self.fingerprint, self.key = file, fingerprint, key

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenCache, (self.file, self.fingerprint, self.key)

    @cached_property
    def table(self) -> pyarrow.Table:
        """The columns of Tokenize.schema."""
        with reraise_as(f"{self.file} is damaged: remove its folder, so that it is written again"):
            return pyarrow.ipc.open_file(pyarrow.memory_map(str(self.file))).read_all()

    @cached_property
    def _blocks(self) -> list[tuple[NDArray[np.int32], ...]]:
        """Of each block: where its rows begin among its sentences, where these begin among its tokens, and the tokens.

        A row is read from these in a fifth of the time that Arrow takes.
        """
        blocks: list[tuple[NDArray[np.int32], ...]] = []
        for rows in self.table["tokens"].iterchunks():
            sentences = rows.values
            blocks.append((rows.offsets.to_numpy(), sentences.offsets.to_numpy(), sentences.values.to_numpy()))
        return blocks

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, row: Any) -> Any:  # no slices
        """Return the sentences of a row, counted from 0."""
        return tuple(self.table["sentences"][row].as_py())

    def tokens(self, row: int) -> tuple[Tokens, ...]:
        """Return the tokens of each sentence of a row."""
        block, row_in_block = divmod(row, _ROWS_A_BLOCK)
        rows, sentences, tokens = self._blocks[block]
        bounds = sentences[rows[row_in_block] : rows[row_in_block + 1] + 1].tolist()
        return tuple([tokens[begin:end] for begin, end in itertools.pairwise(bounds)])

    def label(self, row: int) -> Any:
        """Return the class as text, the score, the scores, or the document's name, of a row."""
        return self.table["label"][row].as_py()

    def count(self, wanted: Collection[str]) -> int:
        """Return how many of the sentences are in `wanted`."""

        def count() -> int:
            values = pyarrow.array(list(wanted), pyarrow.string())
            chunks = self.table["sentences"].iterchunks()
            return sum(pyarrow.compute.is_in(chunk.flatten(), values).true_count for chunk in chunks)

        return int(self._computed("count", count, sorted(wanted)))

    def classes(self) -> list[str]:
        """Return the names of the classes, sorted."""
        return list(self._computed("classes", lambda: sorted(self.table["label"].unique().to_pylist())))

    def score_range(self) -> tuple[float, float]:
        """Return the lowest and the highest score, as the shortest decimals of their float32."""

        def limits() -> list[float]:
            scores = self.table["label"]
            flat = pyarrow.compute.list_flatten(scores) if pyarrow.types.is_list(scores.type) else scores
            return [float(str(np.float32(limit.as_py()))) for limit in pyarrow.compute.min_max(flat).values()]

        lowest, highest = self._computed("score_range", limits)
        return lowest, highest

    def _computed(self, name: str, compute: Callable[[], Any], key: Any = None) -> Any:
        """Return what is computed from all rows, from the user's cache if it is there."""
        file = f"{name}.json"
        whole_key = self.file.parent.name, name, key
        return read_json(cached("row_counts", whole_key, file, lambda new: write_json(new / file, compute())) / file)


def open_token_cache(
    read: Read, key: Sequence[Any], make: Tokenize, processes: int | None = None, source_fingerprint: str = ""
) -> TokenCache:
    """Open rows from the user's cache; read and tokenize them first if they are not in the cache.

    Args:
        read: takes a function to call with warnings, and returns the rows. It is called only if the cache lacks them.
        key: everything that determines the rows, including the fingerprint of their source.
        make: tokenizes the sentences.
        processes: the number of further processes that tokenize; None for one for each CPU, but at most 16, if there
            are more than 262,144 rows. The file does not depend on it.
        source_fingerprint: the fingerprint of the source.
    """
    tokenizer = make.tokenizer
    settings: Any = [type(tokenizer).__name__, sorted(tokenizer.get_vocab().items()), repr(tokenizer.init_kwargs)]
    if tokenizer.is_fast:
        settings = json.loads(tokenizer.backend_tokenizer.to_str())
        settings.pop("truncation"), settings.pop("padding")  # set by its last call
    settings = settings if tokenizer.truncation_side == "right" else [settings, tokenizer.truncation_side]
    fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
    whole_key = _FORMAT, key, fingerprint, make.max_length
    folder = cached("corpora", whole_key, _MANIFEST, lambda new: _write(new, read, make, processes))
    for warning in read_json(folder / _MANIFEST)["warnings"]:
        log.warning(warning)
    return TokenCache(folder / _ROWS, source_fingerprint, repr(key))


def _tokenized(blocks: Iterator[Block], make: Tokenize, processes: int | None) -> Iterator[TokenizedBlock]:
    """Yield the blocks in order, tokenized by further processes."""
    if processes is None:
        yield from map(make.__getitem__, itertools.islice(blocks, _BLOCKS_ALONE))
        if not (first := list(itertools.islice(blocks, 1))):
            return  # starting processes costs more than they would save
        blocks = itertools.chain(first, blocks)
        processes = min(cpus, _MOST_PROCESSES) if (cpus := available_cpus()) > 1 else 0
    as_they_are: Any = {"batch_size": None, "sampler": blocks, "collate_fn": tuple}
    yield from DataLoader(make, num_workers=processes, worker_init_fn=_one_thread, **as_they_are)


def _one_thread(worker: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _write(new: Path, read: Read, make: Tokenize, processes: int | None) -> None:
    """Write the rows, then the manifest with the warnings to log at every start."""
    warnings: list[str] = []
    rows = tracked(read(warnings.append), "tokenizing rows")
    blocks = iter(lambda: list(itertools.islice(rows, _ROWS_A_BLOCK)), [])
    sentences = full = 0
    with pyarrow.ipc.new_file(str(new / _ROWS), make.schema) as file:
        for block, in_block, full_in_block, unknown in _tokenized(blocks, make, processes):
            sentences += in_block
            full += full_in_block
            if unknown and unknown not in warnings:
                warnings.append(unknown)
            file.write(block)
    if full:
        rate = f"{full / sentences:.2%} of the sentences"
        warnings.append(f"{rate} have data.max_length={make.max_length} tokens or more; what is beyond is cut off")
    write_json(new / _MANIFEST, {"warnings": warnings})
