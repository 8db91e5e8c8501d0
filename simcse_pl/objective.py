"""Objectives: what is minimized, as modules that hold an objective's settings and check them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simcse_pl.distributed import gather_rows, rank
from simcse_pl.errors import UserError
from simcse_pl.losses import SIMILARITIES, contrastive_loss


class ContrastiveObjective(nn.Module):
    """SimCSE's objective over the batch of all devices (equations 1, 4, 5 and 8 of the paper).

    Args:
        temperature: divides the similarities; above 0. The paper's is 0.05 (Table D.1).
        hard_negative_weight: alpha of equation 8, 0 or more; no effect where rows have no hard negatives.
        similarity: `cosine`, or `dot` for the inner product.

    Raises:
        UserError: a value out of range.
    """

    def __init__(
        self, temperature: float = 0.05, hard_negative_weight: float = 1.0, similarity: str = "cosine"
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise UserError(f"objective.temperature={temperature}: it must be above 0")
        if not hard_negative_weight >= 0:
            raise UserError(f"objective.hard_negative_weight={hard_negative_weight}: it must be 0 or more")
        if similarity not in SIMILARITIES:
            raise UserError(f"objective.similarity={similarity}: choose one of {', '.join(SIMILARITIES)}")
        self.temperature = temperature
        self.hard_negative_weight = hard_negative_weight
        self.similarity = similarity

    def forward(self, embeddings: Tensor) -> Tensor:
        """The loss of this device's rows against the rows of all devices.

        Args:
            embeddings: [batch, views, dim]: anchor, positive, then any hard negatives.

        Returns:
            A scalar.
        """
        others = gather_rows(embeddings[:, 1:])
        return contrastive_loss(
            embeddings[:, 0],
            others[:, 0],
            others[:, 1:],
            temperature=self.temperature,
            hard_negative_weight=self.hard_negative_weight,
            similarity=self.similarity,
            first_row=rank() * len(embeddings),
        )


@torch.no_grad()
def mean_similarities(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """The mean cosine of the anchors with their positives, and with everything else in this device's batch.

    Args:
        embeddings: [batch, views, dim].

    Returns:
        Two scalars; the second is not a number where there are no negatives.
    """
    anchors, others = F.normalize(embeddings[:, 0].float(), dim=-1), F.normalize(embeddings[:, 1:].float(), dim=-1)
    positive = (anchors * others[:, 0]).sum(dim=-1)
    everything = anchors.sum(dim=0) @ others.flatten(0, 1).sum(dim=0)
    negatives = len(anchors) * (others.shape[0] * others.shape[1] - 1)
    return positive.mean(), (everything - positive.sum()) / negatives if negatives else everything * torch.nan
