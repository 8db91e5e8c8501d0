"""Similarities, precision and devices; read files of tensors without running code, and hash them."""

import hashlib
import logging
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from simcse_pl.utils.errors import UserError, reraise_as

log = logging.getLogger(__name__)

QUERY, DOCUMENT = "query", "document"  # the names of prompts that retrieval uses
Similarity = Literal["cosine", "dot"]
# By the modules of an `evaluation_mode`: how many blocks they are in, and the modes of their parts before.
_MODES: dict[tuple[nn.Module, ...], tuple[int, list[tuple[nn.Module, bool]]]] = {}
_MODES_LOCK = threading.Lock()


class Encode(Protocol):
    """A function from n sentences to vectors [n, dim]."""

    def __call__(self, sentences: list[str], /, *, prompt_name: str | None = None) -> Tensor:
        """Return the vectors of sentences, with the prompt of this name if the encoder has it."""


def checked_batch_size(given: int | None, default: int) -> int:
    """Return the number of sentences of a batch; raise UserError if it is below 1."""
    if given is not None and given < 1:
        raise UserError(f"batch_size={given}: it should be greater than 0")
    return given or default


def to_device(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Copy tensors of the CPU to a device. A GPU copies them while the host goes on."""
    if device.type == "cuda":
        tensors = {name: x.pin_memory() for name, x in tensors.items()}
    return {name: x.to(device, non_blocking=True) for name, x in tensors.items()}


@contextmanager
def tensor_float32() -> Iterator[None]:
    """Multiply matrices of float32 in TF32, where a GPU has it, within the block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def evaluation_mode(*modules: nn.Module) -> Iterator[None]:
    """Put modules into evaluation mode for the block. Each of their parts then has the mode again that it had.

    Of the threads that are in a block of the same modules, the last one restores their modes.
    """
    with _MODES_LOCK:
        before = [(part, part.training) for module in modules for part in module.modules()]
        count, modes = _MODES.get(modules, (0, before))
        _MODES[modules] = count + 1, modes
        for module in modules:
            module.eval()
    try:
        yield
    finally:
        with _MODES_LOCK:
            count, modes = _MODES.pop(modules)
            if count > 1:
                _MODES[modules] = count - 1, modes
            else:
                for part, training in modes:
                    part.training = training


def at_least_float32(x: Tensor) -> Tensor:
    """Return half precision as float32, and any other tensor unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def as_float64(x: Tensor) -> Tensor:
    """Return a tensor in float64; on the CPU if its device has no float64 (Apple's MPS)."""
    try:
        return x.double()
    except TypeError:
        return x.cpu().double()


def unit_vectors(x: Tensor) -> Tensor:
    """Divide vectors [..., dim] by their Euclidean norm, in float32 if they are in half precision.

    A vector of zeros stays zeros, with gradient 0, so that its cosines are 0.
    """
    x = at_least_float32(x)
    lengths: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / lengths.masked_fill(lengths == 0, torch.inf)


def finite(vectors: Tensor) -> Tensor:
    """Return the vectors of an encoder; raise UserError if a value is not finite."""
    if not vectors.isfinite().all():
        raise UserError("the encoder returns a vector that is not finite")
    return vectors


def _scaled(x: Tensor, similarity: Similarity) -> Tensor:
    """Return vectors whose inner products are similarities."""
    if similarity not in get_args(Similarity):
        raise UserError(f"similarity={similarity}: it should be {' or '.join(get_args(Similarity))}")
    return unit_vectors(x) if similarity == "cosine" else at_least_float32(x)


def similarity_matrix(queries: Tensor, keys: Tensor, similarity: Similarity = "cosine") -> Tensor:
    """Return the similarity of every query [n, dim] with every key [m, dim], [n, m].

    The similarity is `cosine`, or `dot` for the inner product (Table D.1). It is in float32 if the
    embeddings are in half precision.
    """
    with torch.autocast(queries.device.type, enabled=False):  # it would multiply in half precision
        return _scaled(queries, similarity) @ _scaled(keys, similarity).T


def paired_similarity(first: Tensor, second: Tensor, similarity: Similarity = "cosine") -> Tensor:
    """Return the similarity of each pair of vectors, [...], for two tensors [..., dim]; see `similarity_matrix`."""
    return (_scaled(first, similarity) * _scaled(second, similarity)).sum(dim=-1)


def cosine_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosine similarity of each pair of rows, [n] in float64, for two tensors [n, dim].

    The similarity with a zero vector is 0.
    """
    return paired_similarity(as_float64(first), as_float64(second))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors or torch file, or of its entry `state_dict`; raise UserError if damaged."""
    with reraise_as(f"{path} is damaged"):
        content: dict[str, Any] = load_file(path) if path.suffix == ".safetensors" else dict(read_torch_file(path))
        return dict(content.get("state_dict", content))


def read_torch_file(path: Path, mmap: bool = False) -> Any:
    """Read a file of torch.save. Code in it is never run. With `mmap`, tensors stay on the disk until they are used."""
    try:
        if zipfile.is_zipfile(path) and zipfile.ZipFile(path).testzip():  # torch does not check the file's CRCs
            raise ValueError("a CRC is wrong")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # torch's own message explains how to run the code in a file
        content = "more than tensors and plain values, which is not loaded"
        damaged = f"{path} is not a checkpoint, is damaged, or contains {content}"
        raise UserError(damaged if path.is_file() else f"no file {path}") from error


def hash_tensors(tensors: Mapping[str, Tensor], *settings: Any) -> str:
    """Return a hash of tensors by name and of settings, in hexadecimal digits."""
    digest = hashlib.sha256(repr(settings).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def encode_columns(encode: Encode, *columns: Sequence[str]) -> list[Tensor]:
    """Return the vectors [n, dim] of each column of sentences; `encode` gets the sorted distinct sentences once."""
    distinct = sorted(set().union(*columns))
    row = {sentence: i for i, sentence in enumerate(distinct)}
    vectors = encode(distinct)
    return [vectors[[row[sentence] for sentence in column]] for column in columns]
