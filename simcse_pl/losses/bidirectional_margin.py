"""The loss of a soft negative: its cosine should be below that of the positive, by a gap between two margins."""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import unit_vectors


class BidirectionalMargin(AuxiliaryLoss):
    """The bidirectional margin loss of soft negatives (SNCSE, Wang et al. 2022, 3.4).

    In plain terms: the negation of a sentence has almost the same words and another meaning. It should be less similar
    to the anchor than the positive is, but only by alpha to beta. For the anchor h, the positive h+ and the soft
    negative h-, the loss is the mean over rows of

        max(0, D + alpha) + max(0, -D - beta),    D = cos(h, h-) - cos(h, h+)

    The soft negative is the view with the role `other`, so that no contrastive objective compares it.

    Args:
        weight: lambda, 0 or more.
        alpha, beta: the loss of a row is 0 if cos(h, h+) - cos(h, h-) is in [alpha, beta]; alpha is at most beta.
    """

    name = "bidirectional_margin"

    def __init__(self, weight: float = 1e-3, alpha: float = 0.1, beta: float = 0.3) -> None:
        super().__init__(weight)
        if alpha > beta:
            raise UserError(f"{self.option}.alpha={alpha}: it must be at most beta, {beta}")
        self.alpha, self.beta = alpha, beta

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless rows have one anchor, one positive and one `other` view."""
        if sorted(role for role in roles if role != Role.NEGATIVE) != [Role.ANCHOR, Role.OTHER, Role.POSITIVE]:
            found = ", ".join(roles)
            raise UserError(
                f"{self.option}: rows need one positive and one other view, the soft negative, but they have "
                f"{found}: set views=[dropout,negation]"
            )

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's rows, without the weight."""
        anchor, positive, other = batch.views(Role.ANCHOR, Role.POSITIVE, Role.OTHER)
        unit = unit_vectors(batch.embeddings)
        difference = (unit[:, anchor] * (unit[:, other] - unit[:, positive])).sum(dim=-1)
        losses = torch.relu(difference + self.alpha) + torch.relu(-difference - self.beta)
        return batch.split.weight * losses.mean()
