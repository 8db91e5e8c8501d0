"""Base class of the auxiliary losses, which are added to the objective with a weight."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from simcse_pl.losses.checks import check_anchor_and_positive
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.validation import check_non_negative


class AuxiliaryLoss(nn.Module, ABC):
    """A loss that is added to the objective, times its weight of 0 or more.

    A subclass may have a FrozenEncoder, which is neither trained nor saved, and networks of its own, which
    are trained and saved in training checkpoints. Saved encoders contain neither. Constructors raise UserError for a
    value that is out of its range.

    Attributes:
        name: name of its curve, train/NAME.
        needs_positive: whether rows need an anchor and a positive.
        chunk_size: rows of a batch encoded at once (see gradient_cache). SimCSEModule sets it.
    """

    name: ClassVar[str]
    needs_positive: ClassVar[bool] = False
    chunk_size: int | None = None

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        check_non_negative(f"{self.option}.weight", weight)
        self.weight = weight

    @property
    def option(self) -> str:
        """The config path of the loss, for error messages."""
        return f"auxiliary.{self.name}"

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare the loss for an encoder, once before training; may add parameters, or raise UserError."""

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless the loss is defined for rows with these view roles and this kind of label.

        `labels` is None for rows without labels.
        """
        if self.needs_positive:
            check_anchor_and_positive(roles, self.option)

    @abstractmethod
    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's rows, without the weight.

        SimCSEModule.prepare also calls this once per data set, with 2 rows of that set's views and labels
        0, to find the parameters that get gradients.

        Args:
            encoder: the encoder given to `attach`.
            batch: the step's embeddings, token ids, roles and labels.

        Returns:
            A scalar. Its mean over devices is the loss of the whole batch.
        """
