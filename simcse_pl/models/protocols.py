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
    """Return a list, tuple, series or array of strings as a list; raise UserError for anything else.

    A string would be read as its characters, a data frame as the names of its columns, and a generator only once.
    """
    is_ordered = isinstance(sentences, Sequence) and not isinstance(sentences, str)
    is_flat = is_ordered or len(getattr(sentences, "shape", ())) == 1
    wrong = [item for item in sentences if not isinstance(item, str)] if is_flat else [sentences]
    if wrong:
        raise UserError(f"sentences should be a list of strings: found {type(wrong[0]).__name__}")
    return list(sentences)
