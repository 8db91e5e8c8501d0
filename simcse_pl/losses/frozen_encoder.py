"""Networks that are neither trained nor saved, such as a guide for false negatives or a teacher."""

import hashlib
import logging
import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from simcse_pl.data.collator import TrainingRows
from simcse_pl.losses.loss import EmbeddedBatch, Loss
from simcse_pl.models.backbone import longest_input
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import SENTENCE_MASK
from simcse_pl.utils.errors import UserError, prefixed, reraise_as
from simcse_pl.utils.files import cached, sha256_of
from simcse_pl.utils.tensors import to_device
from simcse_pl.utils.terminal import tracked
from simcse_pl.utils.types import RowKind

log = logging.getLogger(__name__)

Vectors = NDArray[np.floating[Any]]  # [rows, columns, dim], mapped from a file

_FILE = "vectors.npy"
_ROWS_A_BLOCK = 4096
# a text on which tokenizers with equal vocabularies can differ: case, spaces, numbers, ligatures, end token
_TOKENIZED = "A Dög's  café, 12.5 % ﬁt: 狗！"


class Frozen(nn.Module):
    """A network that is not trained.

    It moves to the device of the module that it belongs to. It registers no parameters with that module, so that no
    optimizer, checkpoint or gradient reduction contains them. It keeps its own mode, training or evaluation.
    """

    network: nn.Module

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.__dict__["network"] = network.requires_grad_(False)  # not a submodule, whose weights would be saved

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.network._apply(fn, recurse)  # what .to() and .cuda() of the module call
        super()._apply(fn, recurse)
        return self


class FrozenEncoder(Frozen):
    """An encoder that is not trained, or a file of its vectors. It belongs to a TaughtLoss.

    It reads the token ids of each batch if its vocabulary and its template are those of the trained encoder. If not, it
    encodes the training sentences before the first step; their vectors are kept in the user's cache.

    Args:
        name: a folder, a hub name or package:NAME (see SentenceEncoder.from_pretrained); or a .npy file of vectors,
            [rows, dim] of the first column of the training file, or [rows, columns, dim].
        pooling: None takes what it was saved with; a plain checkpoint has none.
        anchors_only: whether it reads only the first sentence of each row.

    Attributes:
        network: the encoder, in evaluation mode; a module without weights for a file.
        dim: the number of dimensions of its vectors.
        normalize: whether its vectors are meant to have length 1.
    """

    network: SentenceEncoder

    def __init__(self, name: str | Path, pooling: str | None = None, anchors_only: bool = False) -> None:
        file = _open_vectors(name) if Path(name).suffix == ".npy" else None
        super().__init__(SentenceEncoder.from_pretrained(name, pooling) if file is None else nn.Module())
        self.name, self.file, self.anchors_only, self.reads_tokens = name, file, anchors_only, file is None
        if file is None:
            self.dim, self.normalize = self.network.dim, self.network.normalize
        else:
            lengths = np.linalg.norm(file[:1000].astype(np.float32), axis=-1)
            self.dim, self.normalize = file.shape[-1], bool(np.allclose(lengths, 1, atol=1e-3))
        self._stored: dict[str, tuple[Vectors, list[int]]] = {}  # of a data set: vectors, and the column of each view

    @cached_property
    def content(self) -> str | None:
        """A hash of what decides the vectors, which a resumed run reads again."""
        from simcse_pl.models.load import fingerprint

        return fingerprint(self.network) if self.file is None else sha256_of(Path(self.name))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # its vectors are stored, so it need not move to the GPU
        return super()._apply(fn, recurse) if self.reads_tokens else self

    def attach(self, encoder: SentenceEncoder) -> None:
        """Find out whether the encoder's token ids can be read."""
        self.reads_tokens = (
            self.file is None
            and not self.network.postprocess
            and encoder.max_length <= (longest_input(self.network.backbone) or math.inf)
            and self.network.templates.texts == encoder.templates.texts
            and self.network.templates.prompts == encoder.templates.prompts
            and (self.network.template_as_text != "never") == (encoder.template_as_text == "always")
            and self.network.tokenizer.get_vocab() == encoder.tokenizer.get_vocab()
            and self.network.tokenizer(_TOKENIZED)["input_ids"] == encoder.tokenizer(_TOKENIZED)["input_ids"]
        )

    def read(self, rows: RowKind) -> None:
        """Open or compute the vectors of a data set, unless token ids are read; raise UserError if one is missing."""
        if self.reads_tokens or not isinstance(rows, TrainingRows):
            return
        wanted = rows.columns[:1] if self.anchors_only else rows.columns
        columns = [column for column in wanted if column is not None]
        if len(columns) < len(wanted):
            raise UserError(
                f"{self.name}: it has vectors of the training sentences, not of those that views make: set "
                "views=dropout and data.negatives=null, or choose an encoder with the vocabulary, the template and the "
                "length of the trained one"
            )
        count, width = len(rows.cache), max(columns) + 1
        vectors = self._encoded(rows, width) if self.file is None else self.file
        if len(vectors) != count or vectors.shape[1] < width:
            raise UserError(
                f"{self.name} has the vectors of {len(vectors)} rows and {vectors.shape[1]} columns, but {count} rows "
                f"and {width} columns are learnt: one per row of data.train is needed, in the same order"
            )
        self._stored[rows.dataset] = vectors, columns

    def _encoded(self, rows: TrainingRows, columns: int) -> Vectors:
        """Return the vectors of the first columns from the cache; those of rows that are not used may be 0."""
        encoder = self.network
        used = np.concatenate([np.array(part, dtype=np.int64) for part in (rows.chosen, rows.held_out)])

        def write(folder: Path) -> None:
            log.info("encoding %d x %d sentences, once, by %s", len(used), columns, self.name)
            shape = len(rows.cache), columns, self.dim
            vectors = np.lib.format.open_memmap(folder / _FILE, "w+", np.float32, shape)  # type: ignore[no-untyped-call]
            encoder.to("cuda" if torch.cuda.is_available() else "cpu")
            for start in tracked(range(0, len(used), _ROWS_A_BLOCK), "encoding"):
                positions = used[start : start + _ROWS_A_BLOCK]
                texts = zip(*(rows.cache[position][:columns] for position in positions.tolist()), strict=True)
                for column, (prompt, sentences) in enumerate(zip(prompts, texts, strict=True)):
                    vectors[positions, column] = encoder.encode(list(sentences), prompt_name=prompt).numpy()
            vectors.flush()
            encoder.cpu()

        given = [*rows.collate.prompts] or [None]
        given = (given + given[-1:] * columns)[:columns]  # further columns have the last name
        prompts = [name if name in encoder.templates.prompts else None for name in given]
        key = self.content, rows.cache.key, columns, prompts, hashlib.sha256(used.tobytes()).hexdigest()
        return _open_vectors(cached("vectors", key, _FILE, write) / _FILE)

    @property
    def capturable(self) -> bool:
        """Whether a step can be a CUDA graph: not if the host looks vectors up."""
        return self.reads_tokens

    @torch.no_grad()
    def embed(self, batch: EmbeddedBatch) -> Tensor:
        """Return the embeddings of all views of a batch, [batch, views, dim], or of the anchors, [batch, 1, dim]."""
        if not self.reads_tokens:
            vectors, columns = self._stored[batch.dataset or ""]
            chosen = torch.from_numpy(vectors[batch.rows][:, columns]).float()
            return to_device({"": chosen}, batch.inputs["input_ids"].device)[""]
        names = (*self.network.tokenizer.model_input_names, SENTENCE_MASK)
        views = slice(1 if self.anchors_only else None)
        inputs = {name: batch.inputs[name][:, views] for name in names if name in batch.inputs}
        return self.network.embed(inputs, batch.chunk_size)[..., : self.network.truncate_dim]


class TaughtLoss(Loss):
    """A loss with frozen encoders, which are attributes of it or in a ModuleList."""

    runs_networks = True

    def attach(self, encoder: SentenceEncoder) -> None:
        """Find out which of the frozen encoders can read the encoder's token ids."""
        for part in self.modules():
            if isinstance(part, FrozenEncoder):
                part.attach(encoder)

    def check_rows(self, rows: RowKind) -> None:
        """Check the rows, and open the vectors of the frozen encoders that cannot read token ids."""
        super().check_rows(rows)
        for name, part in self.named_modules():
            if isinstance(part, FrozenEncoder):
                with prefixed(name):
                    part.read(rows)


def _open_vectors(path: str | Path) -> Vectors:
    with reraise_as(f"{path} cannot be read"):
        vectors: Vectors = np.load(path, mmap_mode="r")
    if vectors.dtype.kind != "f" or vectors.ndim not in (2, 3):
        shape = f"{vectors.dtype} {list(vectors.shape)}"
        raise UserError(f"{path} has {shape}; it should have floats [rows, dim] or [rows, columns, dim]")
    return vectors if vectors.ndim == 3 else vectors[:, None]
