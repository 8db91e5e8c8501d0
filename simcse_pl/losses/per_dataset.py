"""One loss for each data set."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from simcse_pl.losses.loss import EmbeddedBatch, Loss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError


class LossPerDataset(Loss):
    """One loss for each data set; a batch has the rows of one of them.

    Args:
        default: the loss of the data sets that are not named.
        objectives: the losses by the name of the data set.
    """

    embeds = mean_of_rows = False  # the chosen loss embeds and is weighed, if it needs to

    def __init__(self, default: Loss, objectives: Mapping[str, Loss]) -> None:
        super().__init__()
        for name, loss in objectives.items():
            if not isinstance(loss, Loss):
                raise UserError(f"objectives.{name}={loss}: choose a loss by +objective@objectives.{name}=CHOICE")
        self.default, self.names, self.losses = default, list(objectives), nn.ModuleList(objectives.values())

    @property
    def contrasts(self) -> bool:  # type: ignore[override]
        return any(loss.contrasts for loss in (self.default, *self.losses))  # type: ignore[union-attr]

    def for_dataset(self, name: str | None) -> Loss:
        return self.losses[self.names.index(name)] if name in self.names else self.default  # type: ignore[return-value]

    def attach(self, encoder: SentenceEncoder) -> None:
        for loss in (self.default, *self.losses):
            loss.attach(encoder)  # type: ignore[operator]

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        chosen = self.for_dataset(batch.dataset)
        return chosen.weight * chosen(batch)

    def save(self, encoder: SentenceEncoder, folder: Path) -> None:
        self.default.save(encoder, folder)
