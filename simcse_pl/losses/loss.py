"""Loss: the base class of SimCSE's contrastive loss, and of every loss that replaces it or is added to it."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from pydantic import NonNegativeFloat
from torch import Tensor, nn

from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import RowKind


class Loss(nn.Module, ABC):
    """A loss of a training batch. A subclass writes `forward`.

    Two calls are possible. `loss(encoder, batch)` is that of training. A loss of embeddings alone also takes plain
    tensors, each [n, dim]: `loss(anchors, positives, *hard_negatives, labels=None, queue=None)`, or other views with
    their `roles`.

    A subclass may have networks of its own. They are trained, and saved in training checkpoints, but not with the
    encoder. A FrozenEncoder is neither trained nor saved. A loss keeps no state of a step.

    Args:
        weight: the factor of this loss in a sum of losses.

    Attributes:
        contrasts: whether the other rows of a batch are negatives.
        truncatable: whether the loss depends on the embeddings alone, so that it is defined for their first
            dimensions too (see MatryoshkaLoss).

    Examples:
        >>> ContrastiveLoss(temperature=0.05)(torch.randn(8, 16), torch.randn(8, 16)).shape
        torch.Size([])
    """

    contrasts: ClassVar[bool] = False
    truncatable: ClassVar[bool] = False

    def __init__(self, weight: NonNegativeFloat = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare for an encoder, once before training. It may add parameters, or raise UserError."""

    def check_rows(self, rows: RowKind) -> None:
        """Raise UserError unless the loss is defined for rows with these roles and labels."""

    def for_dataset(self, name: str | None) -> "Loss":
        """Return the loss of a data set."""
        return self

    @abstractmethod
    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's rows without its weight, a scalar.

        Its mean over devices is the loss of the whole batch. The loss is also called once before training, with two
        equal rows, to find the parameters that get gradients.

        Args:
            encoder: the encoder given to `attach`.
            batch: the rows. They are embedded when a loss first reads `batch.embeddings`.
        """

    def __call__(self, *inputs: Any, **further: Any) -> Tensor:
        """Return the loss of a batch, or of plain tensors with further arguments of EmbeddedBatch.of."""
        if inputs and isinstance(inputs[0], Tensor):
            batch = EmbeddedBatch.of(*inputs, **further)
            self.check_rows(batch.kind)
            inputs = None, batch
        loss: Tensor = super().__call__(*inputs)
        return loss

    def held_out_metrics(self, loss: Tensor) -> dict[str, Tensor]:
        """Return the metrics of held-out rows, given their mean loss."""
        return {"loss": loss}

    def save(self, encoder: SentenceEncoder, folder: Path) -> None:
        """Save the trained encoder."""
        encoder.save_pretrained(folder)
