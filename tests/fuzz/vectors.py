"""Targets: word vectors, indexes and post-processings."""

import contextlib
import gzip
import hashlib
import json
from pathlib import Path

import torch

from simcse_pl.errors import UserError
from simcse_pl.index_files import SETTINGS_FILE, VECTORS_FILE
from simcse_pl.postprocess import saved
from simcse_pl.postprocess.base import PostProcess
from simcse_pl.postprocess.components import RemoveComponents
from simcse_pl.postprocess.flow import Flow
from simcse_pl.postprocess.whitening import Whitening
from simcse_pl.sentence_index import SentenceIndex
from simcse_pl.word_vectors import WordVectors
from tests.fuzz.engine import Target
from tests.fuzz.tiny import encode, files_under

_SENTENCES = [f"A dog {'runs ' * n}." for n in range(6)]
_GLOVE = [b"a 1 2.5\ndog -1e-3 0\n. . 1 2\n", b"2 2\na 1 2\ndog 3 4\n"]


def _packed(folder: Path) -> None:
    WordVectors.from_file(folder / "a.gz").encode(["A dog runs.", ""])


def _word_vectors(folder: Path) -> None:
    WordVectors.from_file(folder / "a.txt", folder / "counts.txt").encode(["A dog runs.", ""])


def _index() -> Target:
    def read(folder: Path) -> None:
        SentenceIndex.load(folder, encode).search(["A dog."], 2)

    index = SentenceIndex.build(encode, _SENTENCES)
    return Target(files_under(index.save), read, 250, _seal_index)


def _seal_index(files: dict[str, bytes]) -> None:
    """Update the checksum of changed vectors, where the settings are still an object."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        settings = json.loads(files[SETTINGS_FILE]) | {
            "vectors_sha256": hashlib.sha256(files[VECTORS_FILE]).hexdigest()
        }
        files[SETTINGS_FILE] = json.dumps(settings).encode()


def _postprocess(fitted: PostProcess) -> Target:
    def read(folder: Path) -> None:
        loaded = saved.load(folder)
        with contextlib.suppress(UserError):  # what is out of float32's range is told, and of no file
            loaded.transform(torch.ones(2, 4))

    return Target(files_under(fitted.save), read, 250)


_X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))

TARGETS = {
    "word_vectors": Target({"a.txt": _GLOVE, "counts.txt": [b"a 10\ndog 2\n"]}, _word_vectors),
    "word_vectors_gzip": Target({"a.gz": [gzip.compress(own, mtime=0) for own in _GLOVE]}, _packed, 300),
    "index": _index(),
    "whitening": _postprocess(Whitening().fit(_X)),
    "components": _postprocess(RemoveComponents(1).fit(_X)),
    "flow": _postprocess(Flow(transforms=2, hidden=2, epochs=1).fit(_X)),
}
