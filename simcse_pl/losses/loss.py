"""Loss: the base class of SimCSE's contrastive loss, and of every loss that replaces it or is added to it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeFloat
from torch import Tensor, nn

from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import LabelKind, Role, RowKind
from simcse_pl.utils.errors import UserError


@dataclass(frozen=True)
class Needs:
    """What a loss needs of a row: one anchor, positives, and perhaps hard negatives and a label.

    Args:
        positives: how many positives there must be; None for one or more.
        negatives: whether there must be hard negatives; None for any number.
        labels: the kind of the label; None for no label, since it would be ignored; `any` if that is intended. A row
            with a label is a pair.
    """

    positives: int | None = None
    negatives: bool | None = None
    labels: LabelKind | Literal["any"] | None = None

    def check(self, rows: RowKind) -> None:
        """Raise UserError unless rows have what is needed."""
        if self.labels in ("classes", "scores"):
            self._check_pairs(rows)
            return
        count = {role: rows.roles.count(role) for role in Role}
        wanted = ["one anchor", "a positive" if self.positives is None else f"{self.positives} positive"]
        valid = rows.roles[0] == Role.ANCHOR and count[Role.ANCHOR] == 1
        valid = valid and count[Role.POSITIVE] == (self.positives or max(1, count[Role.POSITIVE]))
        if self.negatives is not None:
            wanted.append("hard negatives" if self.negatives else "no negative")
            valid = valid and (count[Role.NEGATIVE] > 0) == self.negatives
        if not valid:
            raise UserError(f"a row needs {', '.join(wanted)}, not {', '.join(rows.roles)}: change data.roles or views")
        if rows.labels and self.labels is None:
            column = {"classes": "label_column", "scores": "score_column"}[rows.labels]
            raise UserError(f"this loss takes no labels: set data.{column}=null, or another objective")

    def _check_pairs(self, rows: RowKind) -> None:
        if len(rows.roles) != 2:
            count = len(rows.roles)
            raise UserError(f"this loss takes pairs, but rows have {count} sentences: name two in data.columns")
        if rows.labels != self.labels:
            label = "label" if self.labels == "classes" else "score"
            raise UserError(f"this loss needs a {label} for every pair: set data.{label}_column")


class Loss(nn.Module, ABC):
    """A loss of a training batch. A subclass writes `forward`.

    Two calls are possible. `loss(encoder, batch)` is that of training. A loss of embeddings alone also takes plain
    tensors, each [n, dim]: `loss(anchors, positives, *hard_negatives, labels=None, queue=None)`, or other views with
    their `roles`.

    A subclass may have networks of its own. They are trained, and saved in training checkpoints, but not with the
    encoder. A FrozenEncoder is neither trained nor saved. A loss keeps no state of a step.

    Args:
        weight: the factor of this loss in a sum of losses; all losses have it.

    Attributes:
        contrasts: whether the other rows of a batch are negatives.
        truncatable: whether the loss depends on the embeddings alone, so that it is defined for their first
            dimensions too (see MatryoshkaLoss).
        needs: what rows must have; None for nothing.

    Examples:
        >>> ContrastiveLoss(temperature=0.05)(torch.randn(8, 16), torch.randn(8, 16)).shape
        torch.Size([])
    """

    contrasts: ClassVar[bool] = False
    truncatable: ClassVar[bool] = False
    needs: ClassVar[Needs | None] = None

    def __init__(self, weight: NonNegativeFloat = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare for an encoder, once before training. It may add parameters, or raise UserError."""

    def check_rows(self, rows: RowKind) -> None:
        """Raise UserError unless the loss is defined for rows with these roles and labels."""
        if self.needs:
            self.needs.check(rows)

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


def check_head_is_kept(encoder: SentenceEncoder) -> None:
    """Raise UserError if a head makes the vectors of training, and not those of the saved encoder."""
    if encoder.head.endswith("_train_only"):
        raise UserError(
            f"model.head={encoder.head}: the vectors of the saved encoder would not be trained, because this head is "
            "dropped: set model.head=none or mlp"
        )


def check_width_is_kept(encoder: SentenceEncoder) -> None:
    """Raise UserError if the pooled vectors cannot take the place of a state of the backbone."""
    width = encoder.backbone.config.hidden_size
    if encoder.pooled_dim != width:
        raise UserError(f"model.pooling={encoder.pooling}: it returns {encoder.pooled_dim} dimensions, not {width}")
