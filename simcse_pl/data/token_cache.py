"""The rows of a source with their tokens, read and tokenized once, then mapped from a file on disk.

Memory does not grow with the corpus, and the second start reads nothing but checksums.
"""

import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import pyarrow
import pyarrow.compute
from filelock import FileLock
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.readers.row_reader import ReadRows, Row
from simcse_pl.models.tokenization import Tokens, tokenize
from simcse_pl.utils.errors import WriteError
from simcse_pl.utils.files import (
    atomic_write,
    cache_folder,
    read_json,
    remove_half_written,
    reraise_write_errors,
    sha256_of,
)
from simcse_pl.utils.progress import counter

log = logging.getLogger(__name__)

T = TypeVar("T")

_FORMAT = 2
_ROWS_A_BLOCK = 4096
_ROWS, _SEAL = "rows.arrow", "seal.json"
_READ: dict[str, Callable[[Any], Any]] = {
    "sentences": lambda cell: tuple(cell.as_py()),
    "tokens": lambda cell: tuple(sentence.values.to_numpy() for sentence in cell),
    "name": lambda cell: cell.as_py(),
}


@dataclass(frozen=True)
class Seal:
    """What stands beside the rows and was written after them: without it they are not whole."""

    sha256: str
    warnings: list[str]  # of the reader, and of sentences that are cut; told at every start


class Column(Sequence[T]):
    """A column of a file of rows, mapped into memory; a copy, in another process too, maps the file anew."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name

    def __reduce__(self) -> tuple[type["Column[T]"], tuple[Path, str]]:
        return Column, (self._path, self._name)

    @cached_property
    def blocks(self) -> list[pyarrow.Array]:
        """What it holds, as Arrow has it, so many rows a block."""
        return [batch.column(self._name) for batch in _batches(self._path)]

    @cached_property
    def _length(self) -> int:
        return sum(map(len, self.blocks))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, row: int) -> T: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[T]: ...
    def __getitem__(self, row: int | slice) -> T | Sequence[T]:
        """What stands in a row, counted from 0."""
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        block, place = divmod(range(len(self))[row], _ROWS_A_BLOCK)  # an IndexError where there is no such row
        value: T = _READ[self._name](self.blocks[block][place])
        return value


def _batches(path: Path) -> list[pyarrow.RecordBatch]:
    reader = pyarrow.ipc.open_file(pyarrow.memory_map(str(path)))
    return [reader.get_batch(i) for i in range(reader.num_record_batches)]


@dataclass(frozen=True)
class Corpus:
    """Rows of sentences.

    Attributes:
        sentences: of each row its sentences.
        tokens: of each row the tokens of each of its sentences.
        names: of each row its label, or its document's name; None where it was read without.
    """

    sentences: Sequence[Row]
    tokens: Sequence[tuple[Tokens, ...]]
    names: Sequence[str] | None

    def count(self, wanted: Collection[str]) -> int:
        """How many of the sentences are among the wanted ones."""
        assert isinstance(self.sentences, Column)
        values = pyarrow.array(list(wanted), pyarrow.string())
        found = (pyarrow.compute.is_in(block.flatten(), values) for block in self.sentences.blocks)
        return sum(own.true_count for own in found)


def open_token_cache(
    read: Callable[[], ReadRows],
    described: Sequence[Any],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    named: bool = False,
) -> Corpus:
    """The rows that `read` gives, from the user's cache where they are there and undamaged.

    Processes that start at once wait for the first of them to write it.

    Args:
        read: gives the rows; called only where they are not in the cache.
        described: all that decides what it gives, with the fingerprint of its source.
        tokenizer: of the sentences.
        max_length: tokens read of a sentence, special tokens included.
        named: whether rows have a label or a document's name.

    Raises:
        UserError: from `read`.
        WriteError: the system does not let the tokens be kept.
    """
    key = repr((_FORMAT, described, _fingerprint(tokenizer), max_length))
    folder = cache_folder() / "corpora" / hashlib.sha256(key.encode()).hexdigest()[:16]
    try:
        with reraise_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / "lock"):
                remove_half_written(folder)
                seal = _intact(folder) or _write(folder, read(), tokenizer, max_length)
    except WriteError as error:
        raise WriteError(f"tokens to {folder}", error.why, "XDG_CACHE_HOME takes another folder") from error
    for warning in seal.warnings:
        log.warning(warning)
    path = folder / _ROWS
    return Corpus(Column(path, "sentences"), Column(path, "tokens"), Column(path, "name") if named else None)


def _intact(folder: Path) -> Seal | None:
    """The seal of rows that are as they were written; None where there are none, or something happened to them.

    The checksum tells of damage alone, so what Arrow would take on trust as it maps them is looked at too.
    """
    if not (folder / _SEAL).exists():
        return None
    try:
        seal = Seal(**read_json(folder / _SEAL))
        texts = isinstance(seal.warnings, list) and all(isinstance(warning, str) for warning in seal.warnings)
        if texts and sha256_of(folder / _ROWS) == seal.sha256 and _is_sound(_batches(folder / _ROWS)):
            return seal
    except (OSError, ValueError, TypeError, pyarrow.ArrowException):
        pass
    log.warning("the tokens kept in %s are damaged, and made again", folder)
    return None


def _is_sound(batches: list[pyarrow.RecordBatch]) -> bool:
    for batch in batches:
        batch.validate(full=True)
    full = all(len(batch) == _ROWS_A_BLOCK for batch in batches[:-1])
    return full and bool(batches) and batches[0].schema in (_schema(pyarrow.uint16()), _schema(pyarrow.int32()))


def _schema(token: pyarrow.DataType) -> pyarrow.Schema:
    return pyarrow.schema(
        {
            "sentences": pyarrow.list_(pyarrow.string()),
            "tokens": pyarrow.list_(pyarrow.list_(token)),
            "name": pyarrow.string(),
        }
    )


def _write(folder: Path, records: ReadRows, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Seal:
    small = len(tokenizer) <= np.iinfo(np.uint16).max
    schema = _schema(pyarrow.uint16() if small else pyarrow.int32())
    warnings: list[str] = []
    read = full = 0
    rows = _noting_warning(records, warnings)
    with atomic_write(folder, last=_SEAL) as new, counter("tokenizing", " rows") as bar:
        task = bar.add_task("", total=None)
        with pyarrow.ipc.new_file(str(new / _ROWS), schema) as file:
            while block := list(itertools.islice(rows, _ROWS_A_BLOCK)):
                sentences = [row for row, _ in block]
                tokens = iter(tokenize(tokenizer, [sentence for row in sentences for sentence in row], max_length))
                own = [[next(tokens) for _ in row] for row in sentences]
                read += sum(map(len, own))
                full += sum(len(ids) >= max_length for row in own for ids in row)
                file.write(pyarrow.record_batch([sentences, own, [name for _, name in block]], schema=schema))
                bar.advance(task, len(block))
        if full:
            share = f"{full / read:.2%} of the sentences"
            warnings.append(f"{share} fill data.max_length={max_length} tokens; what is beyond is not read")
        seal = Seal(sha256_of(new / _ROWS), warnings)
        (new / _SEAL).write_text(json.dumps(asdict(seal)), encoding="utf-8")
    return seal


def _noting_warning(records: ReadRows, warnings: list[str]) -> Iterator[tuple[Row, str | None]]:
    """The records, and at their end what they warn of."""
    if warning := (yield from records):
        warnings.append(warning)


def _fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """What is another for a tokenizer that gives other tokens."""
    if tokenizer.is_fast:
        settings = json.loads(tokenizer.backend_tokenizer.to_str())
        settings.pop("truncation"), settings.pop("padding")  # what it was last called with
    else:
        settings = [type(tokenizer).__name__, sorted(tokenizer.get_vocab().items()), repr(tokenizer.init_kwargs)]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()
