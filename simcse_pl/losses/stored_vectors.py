"""Vectors of the sentences of a training file, mapped from a file: made beforehand, or computed once."""

import hashlib
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.fingerprint import fingerprint
from simcse_pl.models.roles import TrainingRows
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import cached
from simcse_pl.utils.terminal import tracked

log = logging.getLogger(__name__)

Vectors = NDArray[np.floating[Any]]  # [rows, columns, dim]

_FILE = "vectors.npy"
_ROWS_A_BLOCK = 4096


def open_vectors(path: Path) -> Vectors:
    """Map a .npy file of vectors, [rows, dim] of the first column or [rows, columns, dim].

    Raises:
        UserError: it cannot be read, or has another shape or type, such as that of quantized vectors.
    """
    with reraise_as(f"{path} cannot be read"):
        vectors: Vectors = np.load(path, mmap_mode="r")
    if vectors.dtype.kind != "f" or vectors.ndim not in (2, 3):
        shape = f"{vectors.dtype} {list(vectors.shape)}"
        raise UserError(f"{path} has {shape}; it should have floats [rows, dim] or [rows, columns, dim]")
    return vectors if vectors.ndim == 3 else vectors[:, None]


def encoded(encoder: SentenceEncoder, rows: TrainingRows, columns: int) -> Vectors:
    """Return an encoder's vectors of the first columns of all rows, from the user's cache; first write them if needed.

    Rows that are not used are zeros, and take no place on the disk.
    """
    used = rows.used
    key = fingerprint(encoder), rows.key, columns, hashlib.sha256(used.tobytes()).hexdigest()

    def write(folder: Path) -> None:
        log.info("encoding %d x %d sentences, once, by %s", len(used), columns, encoder.backbone.config.name_or_path)
        shape = len(rows.sentences), columns, encoder.dim
        vectors = np.lib.format.open_memmap(folder / _FILE, "w+", np.float32, shape)  # type: ignore[no-untyped-call]
        encoder.to("cuda" if torch.cuda.is_available() else "cpu")
        for start in tracked(range(0, len(used), _ROWS_A_BLOCK), "encoding"):
            places = used[start : start + _ROWS_A_BLOCK]
            sentences = [sentence for place in places.tolist() for sentence in rows.sentences[place][:columns]]
            vectors[places] = encoder.encode(sentences).reshape(len(places), columns, -1).numpy()
        vectors.flush()
        encoder.cpu()

    vectors: Vectors = np.load(cached("vectors", key, _FILE, write) / _FILE, mmap_mode="r")
    return vectors
