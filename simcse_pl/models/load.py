"""Loading whatever an encoder is named by: a folder, a hub name, a checkpoint of training, or word vectors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from torch import Tensor

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.word_vectors import WordVectors
from simcse_pl.utils.errors import UserError

CHECKPOINT = ".ckpt"
WORD_VECTORS = (".txt", ".vec", ".txt.gz", ".vec.gz")


class Encoder(Protocol):
    """What turns sentences into vectors.

    Attributes:
        normalize: whether `encode` scales its vectors to length 1.
    """

    normalize: bool

    @property
    def dim(self) -> int:
        """The width of a vector."""

    def encode(
        self, sentences: Sequence[str], *, batch_size: int | None = ..., progress: bool = ..., bf16: bool = ...
    ) -> Tensor:
        """Vectors [n, dim] for n sentences, in their order, float32 on the CPU."""


def load_encoder(
    name: str,
    pooling: str | None = None,
    num_layers: int | None = None,
    max_length: int | None = None,
    normalize: bool | None = None,
    word_counts: str | None = None,
) -> Encoder:
    """The encoder of a name, ready to encode, on the CPU.

    Args:
        name: a Lightning checkpoint of train.py (`.ckpt`), a file of word vectors (`.txt` or `.vec`, gzipped or not),
            whose average is taken, or else what SentenceEncoder.from_pretrained takes: a folder of ours or of
            sentence-transformers, or any Hugging Face checkpoint with a pooling.
        pooling, num_layers, max_length: in place of the transformer's own, where given.
        normalize: scale vectors to length 1; as the encoder itself says where None.
        word_counts: a file of words and their counts, for word vectors alone.

    Raises:
        UserError: no such encoder, one that is damaged, or an option that does not fit it.
    """
    if name.endswith(WORD_VECTORS) and not Path(name).is_dir():
        for option, value in (("pooling", pooling), ("num_layers", num_layers), ("max_length", max_length)):
            if value is not None:
                raise UserError(f"{option}={value}: {name} is a file of word vectors, which takes no {option}")
        return WordVectors.from_file(name, word_counts, normalize=bool(normalize), progress=True)
    if word_counts is not None:
        raise UserError(f"word_counts={word_counts}: they are for word vectors, and {name} is a transformer")
    if name.endswith(CHECKPOINT) and not Path(name).is_dir():
        return SentenceEncoder.from_checkpoint(name, pooling, max_length, num_layers, normalize)
    return SentenceEncoder.from_pretrained(
        name, pooling, num_layers=num_layers, max_length=max_length, normalize=normalize
    )
