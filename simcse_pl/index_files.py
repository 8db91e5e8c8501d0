"""The folder that an index of sentences is kept in: its sentences, its vectors, and their checksums."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from simcse_pl.encoder_files import read_json, read_weights
from simcse_pl.errors import UserError, one_line
from simcse_pl.files import written_whole
from simcse_pl.vector_index import VectorIndex, exact, need_faiss

VECTORS_FILE = "vectors.safetensors"  # of an exact index, whether FAISS is installed or not
INVERTED_FILE = "index.faiss"
SENTENCES_FILE = "sentences.json"
SETTINGS_FILE = "retrieval.json"


def write_index(folder: str | Path, sentences: list[str], index: VectorIndex) -> None:
    """Write all files, each whole before it is moved to its place, the checksums last.

    Args:
        folder: made if it is not there; an index that is in it gives way.
        sentences: vector i of the index is sentence i's.
        index: one of `vector_index`.
    """
    inverted = hasattr(index, "nlist")
    with written_whole(folder, last=SETTINGS_FILE) as new:
        if inverted:
            import faiss

            faiss.write_index(index, str(new / INVERTED_FILE))  # type: ignore[call-overload]
        else:
            vectors = torch.from_numpy(index.reconstruct_n(0, index.ntotal))  # type: ignore[attr-defined]
            save_file({"vectors": vectors}, new / VECTORS_FILE)
        (new / SENTENCES_FILE).write_text(json.dumps(sentences, ensure_ascii=False), encoding="utf-8")
        checksums = {path.name: _checksum(path) for path in sorted(new.iterdir())}
        (new / SETTINGS_FILE).write_text(json.dumps(checksums, indent=2) + "\n", encoding="utf-8")
    (Path(folder) / (VECTORS_FILE if inverted else INVERTED_FILE)).unlink(missing_ok=True)


def read_index(folder: str | Path) -> tuple[list[str], VectorIndex]:
    """The sentences and the index of a folder.

    Raises:
        UserError: files that are missing, damaged or from different savings; an inverted file where FAISS is not
            installed.
    """
    folder = Path(folder)
    checksums = _checksums(folder)
    for file, checksum in checksums.items():  # before FAISS, which trusts what its files say
        if not (folder / file).is_file():
            raise UserError(f"{folder}: {file} is missing; build the index again")
        if _checksum(folder / file) != checksum:
            raise UserError(f"{folder}: {file} is damaged or of another index; build the index again")
    try:
        sentences = read_json(folder / SENTENCES_FILE)
        index = _read_vectors(folder) if VECTORS_FILE in checksums else _read_inverted_file(folder)
    except RuntimeError as error:
        raise UserError(f"{folder} is damaged: {one_line(error)}") from error
    if not isinstance(sentences, list) or not sentences or index.ntotal != len(sentences):
        raise UserError(f"{folder} is damaged: its vectors and {SENTENCES_FILE} do not belong together")
    return sentences, index


def _read_vectors(folder: Path) -> VectorIndex:
    vectors = read_weights(folder / VECTORS_FILE).get("vectors")
    if vectors is None or vectors.dim() != 2 or vectors.dtype != torch.float32:
        raise UserError(f"{folder} is damaged: {VECTORS_FILE} must hold `vectors`, [n, dim] float32")
    return exact(vectors.numpy())


def _read_inverted_file(folder: Path) -> VectorIndex:
    need_faiss()
    import faiss

    return faiss.read_index(str(folder / INVERTED_FILE))


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksums(folder: Path) -> dict[str, str]:
    path = folder / SETTINGS_FILE
    if not path.is_file():
        raise UserError(f"{folder} holds no index: {SETTINGS_FILE} is missing")
    checksums = read_json(path)
    if not isinstance(checksums, dict) or checksums.keys() not in (
        {VECTORS_FILE, SENTENCES_FILE},
        {INVERTED_FILE, SENTENCES_FILE},
    ):
        raise UserError(f"{path} is damaged: it must hold the checksums of an index's files")
    return checksums
