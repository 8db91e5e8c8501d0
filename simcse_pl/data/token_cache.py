"""The rows of a source and their tokens, read and tokenized once, then mapped from a file in the user's cache.

Memory hardly grows with the number of rows. A second start only computes the checksum of the source. The first start
takes half as long as that of `datasets.map` (benchmarks/data.py).
"""

import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.readers.row_reader import NamedRows, Row, Warn
from simcse_pl.models.tokenization import Tokens, tokenize, unknown_text
from simcse_pl.utils.files import cached, read_json, write_json
from simcse_pl.utils.terminal import counter

log = logging.getLogger(__name__)

Read = Callable[[Warn], NamedRows]

_FORMAT = 3
_ROWS_A_BLOCK = 4096
_ROWS, _MANIFEST = "rows.arrow", "manifest.json"
_SCHEMA = pyarrow.schema(
    {
        "sentences": pyarrow.list_(pyarrow.string()),
        "tokens": pyarrow.list_(pyarrow.list_(pyarrow.int32())),
        "name": pyarrow.string(),
    }
)


class TokenCache(Sequence[Row]):
    """Rows of sentences, mapped from an Arrow file. Worker processes map the file again rather than copy it.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenCache, (self._path,)

    @cached_property
    def _table(self) -> pyarrow.Table:
        return pyarrow.ipc.open_file(pyarrow.memory_map(str(self._path))).read_all()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, row: Any) -> Any:  # no slices
        """Return the sentences of a row, counted from 0."""
        return tuple(self._table["sentences"][row].as_py())

    def tokens(self, row: int) -> tuple[Tokens, ...]:
        """Return the tokens of each sentence of a row."""
        return tuple([sentence.values.to_numpy() for sentence in self._table["tokens"][row]])

    def names(self) -> list[Any]:
        """Return the label, the score as text, or the document's name, of each row."""
        names: list[Any] = self._table["name"].to_pylist()
        return names

    def name(self, row: int) -> Any:
        """Return the label, the score as text, or the document's name, of a row."""
        return self._table["name"][row].as_py()

    def count(self, wanted: Collection[str]) -> int:
        """Return how many of the sentences are in `wanted`."""
        values = pyarrow.array(list(wanted), pyarrow.string())
        chunks = self._table["sentences"].iterchunks()
        return sum(pyarrow.compute.is_in(chunk.flatten(), values).true_count for chunk in chunks)


def open_token_cache(read: Read, key: Sequence[Any], tokenizer: PreTrainedTokenizerBase, max_length: int) -> TokenCache:
    """Open rows from the user's cache; read and tokenize them first if they are not in the cache.

    Args:
        read: takes a function to call with warnings, and returns the rows. It is called only if the cache lacks them.
        key: everything that determines the rows, including the fingerprint of their source.
        tokenizer: tokenizes the sentences.
        max_length: the maximum number of tokens of a sentence, special tokens included.

    Raises:
        UserError: from `read`.
        WriteError: the cache cannot be written.
    """
    settings: Any = [type(tokenizer).__name__, sorted(tokenizer.get_vocab().items()), repr(tokenizer.init_kwargs)]
    if tokenizer.is_fast:
        settings = json.loads(tokenizer.backend_tokenizer.to_str())
        settings.pop("truncation"), settings.pop("padding")  # of its last call
    fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
    whole_key = _FORMAT, key, fingerprint, max_length
    folder = cached("corpora", whole_key, _MANIFEST, lambda new: _write(new, read, tokenizer, max_length))
    for warning in read_json(folder / _MANIFEST)["warnings"]:
        log.warning(warning)
    return TokenCache(folder / _ROWS)


def _write(new: Path, read: Read, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Write the rows, then the manifest with the warnings to log at every start."""
    warnings: list[str] = []
    rows = read(warnings.append)
    sentences = full = 0
    with counter("tokenizing", " rows") as bar:
        task = bar.add_task("", total=None)
        with pyarrow.ipc.new_file(str(new / _ROWS), _SCHEMA) as file:
            while block := list(itertools.islice(rows, _ROWS_A_BLOCK)):
                tokens = tokenize(tokenizer, [sentence for row, _ in block for sentence in row], max_length)
                sentences += len(tokens)
                full += sum(len(ids) >= max_length for ids in tokens)
                if (unknown := unknown_text(tokenizer, tokens)) and unknown not in warnings:
                    warnings.append(unknown)
                left = iter(tokens)
                columns = [
                    [row for row, _ in block],
                    [[next(left) for _ in row] for row, _ in block],
                    [name for _, name in block],
                ]
                file.write(pyarrow.record_batch(columns, schema=_SCHEMA))
                bar.advance(task, len(block))
    if full:
        rate = f"{full / sentences:.2%} of the sentences"
        warnings.append(f"{rate} have data.max_length={max_length} tokens or more, and are truncated to that")
    write_json(new / _MANIFEST, {"warnings": warnings})
