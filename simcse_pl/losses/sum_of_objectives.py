"""Several objectives in one."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.objectives import Objective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.validation import check_non_negative


class SumOfObjectives(Objective):
    """A weighted sum of objectives on the same rows.

    Args:
        objectives: the objectives by name, at least one; each name is a curve, train/objective/NAME.
        weights: the weight of each objective by name, 0 or more; 1 for those without one.
    """

    def __init__(self, objectives: Mapping[str, Objective], weights: Mapping[str, float] | None = None) -> None:
        super().__init__()
        if not objectives:
            raise UserError("objective.objectives is empty: name at least one")
        for name, weight in (weights or {}).items():
            if name not in objectives:
                raise UserError(f"objective.weights.{name}: choose one of {', '.join(objectives)}")
            check_non_negative(f"objective.weights.{name}", weight)
        self.objectives = nn.ModuleList(objectives.values())  # a ModuleDict rejects some names
        self.weights = {name: float((weights or {}).get(name, 1)) for name in objectives}

    @property
    def contrasts(self) -> bool:  # type: ignore[override]
        """Whether the other rows of a batch are negatives, for any of the objectives."""
        return any(part.contrasts for part in self._parts().values())

    @property
    def truncatable(self) -> bool:  # type: ignore[override]
        """Whether all objectives depend on the embeddings alone."""
        return all(part.truncatable for part in self._parts().values())

    def _parts(self) -> dict[str, Objective]:
        return dict(zip(self.weights, self.objectives, strict=True))  # type: ignore[arg-type]

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare each objective."""
        for part in self._parts().values():
            part.attach(encoder)

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Check the rows for each objective."""
        for part in self._parts().values():
            part.check_rows(roles, labels)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the weighted sum."""
        losses = {name: part(batch) for name, part in self._parts().items()}
        self.curves = {f"objective/{name}": loss.detach() for name, loss in losses.items()}
        for part in self._parts().values():
            self.curves |= part.curves
        return torch.stack([self.weights[name] * loss for name, loss in losses.items()]).sum()
