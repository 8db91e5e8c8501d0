"""A custom LightningModule: the weights of the auxiliary losses rise from 0."""

from typing import Any

from torch import Tensor

from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.module import SimCSEModule


class WarmUpOfTerms(SimCSEModule):
    """SimCSEModule that raises the weights of the auxiliary losses from 0 to their values.

    Args:
        warmup: the share of the training steps over which the weights rise linearly.
    """

    def __init__(self, *args: Any, warmup: float = 0.1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.warmup = warmup

    def loss(self, batch: EmbeddedBatch) -> Tensor:
        """Return the objective plus the auxiliary losses with their current weights."""
        share = min(1.0, batch.progress / self.warmup)
        objective = self.objective_of(batch.dataset)
        loss: Tensor = objective.weight * objective(batch)
        for name, term in self.auxiliary.items():
            value = term(batch)
            batch.log(name, value)
            loss = loss + term.weight * value * share
        return loss
