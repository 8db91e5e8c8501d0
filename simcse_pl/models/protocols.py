"""The interfaces of encoders: `Encode`, all that evaluation needs, and `Encoder`."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from simcse_pl.utils.errors import UserError

Encode = Callable[[list[str]], Tensor]  # from n sentences to vectors [n, dim]


class Encoder(Protocol):
    """A model that turns sentences into vectors.

    Attributes:
        normalize: whether `encode` scales its vectors to length 1.
    """

    normalize: bool

    @property
    def dim(self) -> int:
        """Return the number of dimensions of a vector."""

    def encode(
        self,
        sentences: Sequence[str],
        *,
        batch_size: int | None = ...,
        progress: bool = ...,
        bf16: bool = ...,
        normalize: bool | None = ...,
    ) -> Tensor:
        """Return vectors [n, dim] for n sentences in order, in float32 on the CPU; `normalize` replaces the own one."""


def checked_sentences(sentences: Sequence[str]) -> list[str]:
    """Return sentences as a list; raise UserError unless they are strings.

    One string would be a list of characters, and a data frame a list of its columns.
    """
    is_flat = not isinstance(sentences, str) and getattr(sentences, "ndim", 1) == 1
    if not is_flat or not all(isinstance(sentence, str) for sentence in sentences):
        raise UserError("encode takes a list of strings")
    return list(sentences)
