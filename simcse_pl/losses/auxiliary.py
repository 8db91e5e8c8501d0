"""What is added to the objective: a term with a weight, such as the masked-language-modelling loss."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.validation import check_non_negative


class AuxiliaryLoss(nn.Module, ABC):
    """A term that is added to the objective, times its weight.

    Args:
        weight: 0 or more.

    Attributes:
        name: of its curve, train/NAME.
        chunk_size: rows of a batch that are encoded at once (see gradient_cache.in_chunks).
        length_bucketing: whether sequences of like length go through the backbone together (see length_groups).

    Raises:
        UserError: a weight below 0, or infinite.
    """

    name: ClassVar[str]
    chunk_size: int | None = None
    length_bucketing: bool = False

    def __init__(self, weight: float) -> None:
        super().__init__()
        check_non_negative(f"auxiliary.{self.name}.weight", weight)
        self.weight = weight

    def attach(self, encoder: SentenceEncoder) -> None:
        """Take from the encoder what the term needs, once and before training; may add parameters.

        Raises:
            UserError: an encoder that the term cannot be computed for.
        """

    @abstractmethod
    def forward(self, encoder: SentenceEncoder, batch: Batch) -> Tensor:
        """The term without its weight, a scalar, of tensors [batch, views, tokens].

        Of this device's rows; its mean over devices is the term of the whole batch. SimCSEModule also computes it once
        when it is made, of 2 rows of 2 views, to find the parameters that are trained.
        """
