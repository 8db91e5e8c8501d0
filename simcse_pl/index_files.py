"""The folder that an index of sentences is kept in: its sentences, its vectors, and their checksums."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from simcse_pl.encoder_files import read_weights
from simcse_pl.errors import UserError
from simcse_pl.files import read_json, sha256_of, written_whole
from simcse_pl.vector_index import VectorIndex, exact, of_clusters, parts

VECTORS_FILE = "vectors.safetensors"
SENTENCES_FILE = "sentences.json"
SETTINGS_FILE = "retrieval.json"


def write_index(folder: str | Path, sentences: list[str], index: VectorIndex) -> None:
    """Write all files, each whole before it is moved to its place, the checksums last.

    An inverted file is kept as its vectors and centroids, and put together again by `read_index`: what FAISS writes, it
    reads without asking whether it is so, and a folder may come from a stranger.

    Args:
        folder: made if it is not there; an index that is in it gives way.
        sentences: vector i of the index is sentence i's.
        index: one of `vector_index`.
    """
    with written_whole(folder, last=SETTINGS_FILE) as new:
        save_file({name: torch.from_numpy(part) for name, part in parts(index).items()}, new / VECTORS_FILE)
        (new / SENTENCES_FILE).write_text(json.dumps(sentences, ensure_ascii=False), encoding="utf-8")
        checksums = {path.name: sha256_of(path) for path in sorted(new.iterdir())}
        (new / SETTINGS_FILE).write_text(json.dumps(checksums, indent=2) + "\n", encoding="utf-8")


def read_index(folder: str | Path) -> tuple[list[str], VectorIndex]:
    """The sentences and the index of a folder.

    Raises:
        UserError: files that are missing, damaged or from different savings; an inverted file where FAISS is not
            installed.
    """
    folder = Path(folder)
    checksums = _checksums(folder)
    for file, checksum in checksums.items():
        if not (folder / file).is_file():
            raise UserError(f"{folder}: {file} is missing; build the index again")
        if sha256_of(folder / file) != checksum:
            raise UserError(f"{folder}: {file} is damaged or of another index; build the index again")
    sentences, index = read_json(folder / SENTENCES_FILE), _read_vectors(folder)
    texts = isinstance(sentences, list) and all(isinstance(sentence, str) for sentence in sentences)
    if not texts or not sentences or index.ntotal != len(sentences):
        raise UserError(f"{folder} is damaged: its vectors and {SENTENCES_FILE} do not belong together")
    return sentences, index


def _read_vectors(folder: Path) -> VectorIndex:
    tensors = read_weights(folder / VECTORS_FILE)
    match tensors:
        case {"vectors": vectors} if _is_table(vectors) and len(tensors) == 1:
            return exact(vectors.numpy())
        case {"vectors": vectors, "centroids": centroids, "probes": probes} if (
            _is_table(vectors)
            and _is_table(centroids)
            and centroids.shape[1] == vectors.shape[1]
            and probes.shape == (1,)
            and probes.dtype == torch.int64
            and 1 <= probes.item() <= len(centroids)
        ):
            return of_clusters(vectors.numpy(), centroids.numpy(), int(probes))
    raise UserError(
        f"{folder} is damaged: {VECTORS_FILE} must hold `vectors`, [n, dim] float32, "
        "and of an inverted file `centroids` [lists, dim] and `probes`"
    )


def _is_table(tensor: Tensor) -> bool:
    return tensor.dim() == 2 and tensor.numel() > 0 and tensor.dtype == torch.float32 and bool(tensor.isfinite().all())


def _checksums(folder: Path) -> dict[str, str]:
    path = folder / SETTINGS_FILE
    if not path.is_file():
        raise UserError(f"{folder} holds no index: {SETTINGS_FILE} is missing")
    checksums = read_json(path)
    if not isinstance(checksums, dict) or checksums.keys() != {VECTORS_FILE, SENTENCES_FILE}:
        raise UserError(f"{path} is damaged: it must hold the checksums of an index's files; build the index again")
    return checksums
