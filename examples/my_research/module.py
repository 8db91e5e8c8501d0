"""A custom LightningModule: the weights of the auxiliary losses rise from 0."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from simcse_pl.training.module import SimCSEModule


class WarmUpOfTerms(SimCSEModule):
    """SimCSEModule that raises the weights of the auxiliary losses from 0 to their values.

    Args:
        term_warmup_steps: number of steps over which the weights rise linearly.
    """

    def __init__(self, *args: Any, term_warmup_steps: int = 10, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.term_warmup_steps = term_warmup_steps

    def loss(self, batch: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the objective plus the auxiliary losses with their current weights, and the curves."""
        share = min(1.0, (self.global_step + 1) / self.term_warmup_steps)
        loss, curves = super().loss(batch)
        terms: Any = self.auxiliary
        return loss - (1 - share) * sum(term.weight * curves[term.name] for term in terms), curves
