"""Save an index of sentences in a folder, and read it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from simcse_pl.models.encoder_files import read_weights
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write, read_json, sha256_of

VECTORS_FILE = "vectors.safetensors"
SETTINGS_FILE = "index.json"


def write_index(folder: str | Path, sentences: list[str], vectors: Tensor, settings: Mapping[str, Any]) -> None:
    """Write both files atomically, the settings last.

    Args:
        folder: created if it does not exist; an index in it is replaced.
        sentences: one for each row of `vectors`.
        vectors: [n, dim] float32.
        settings: of the encoder.
    """
    with atomic_write(folder, last=SETTINGS_FILE) as new:
        save_file({"vectors": vectors}, new / VECTORS_FILE)
        index = {"encoder": settings, "vectors_sha256": sha256_of(new / VECTORS_FILE), "sentences": sentences}
        (new / SETTINGS_FILE).write_text(json.dumps(index, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_index(folder: str | Path) -> tuple[list[str], Tensor, dict[str, Any]]:
    """Return the sentences, their vectors and the encoder's settings.

    Raises:
        UserError: a file is missing or damaged, or the two files come from different indexes.
    """
    path, settings_path = Path(folder) / VECTORS_FILE, Path(folder) / SETTINGS_FILE
    if not settings_path.is_file():
        raise UserError(f"{folder} holds no index: {SETTINGS_FILE} is missing")
    match read_json(settings_path):
        case {"encoder": dict(settings), "vectors_sha256": str(checksum), "sentences": [_, *_] as sentences} if all(
            isinstance(sentence, str) for sentence in sentences
        ):
            if not path.is_file():
                raise UserError(f"{folder}: {VECTORS_FILE} is missing; build the index again")
            vectors = read_weights(path).get("vectors", torch.empty(0))
            if sha256_of(path) != checksum:
                raise UserError(f"{path} is damaged or of another index; build the index again")
            if _are_rows(vectors, len(sentences)):
                return sentences, vectors, settings
            raise UserError(f"{path} is damaged: it must hold `vectors` [{len(sentences)}, dim] float32")
    raise UserError(
        f"{settings_path} is damaged: it must hold encoder, vectors_sha256 and sentences; build the index again"
    )


def _are_rows(vectors: Tensor, count: int) -> bool:
    rows = vectors.dim() == 2 and len(vectors) == count and vectors.dtype == torch.float32
    return rows and bool(vectors.isfinite().all())
