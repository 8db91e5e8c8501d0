"""GCSE (Lai et al. 2025): a frozen encoder decides how far to push away a hard negative, which may be false."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import PositiveFloat
from torch import Tensor

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.frozen_encoder import FrozenEncoder, TaughtLoss
from simcse_pl.losses.loss import EmbeddedBatch, Needs, select_views
from simcse_pl.utils.tensors import paired_similarity
from simcse_pl.utils.types import Role


class GaussianDecayLoss(ContrastiveLoss, TaughtLoss):
    """The contrastive loss with Gaussian decay of a row's own hard negatives (GCSE, Lai et al. 2025).

    In plain terms: a hard negative that a language model wrote may mean the same as the anchor. A frozen encoder knows
    roughly how similar the two are. Once the trained encoder finds them as similar as that, or a little less similar,
    the hard negative hardly counts; far from it, it counts in full. For the similarity s = sim(h_i, h_i-) / t and the
    frozen encoder's cosine g, divided by t too, the logit s becomes, as in the released code,

        s - sg(s) exp(-(s - g)^2 / (2 sigma^2)) if s <= g, and s if s > g

    sg passes no gradient. Hard negatives of other rows keep their logits.

    Args:
        guide, pooling: the frozen encoder (see FrozenEncoder). It is not saved.
        sigma: the width of the decay, in units of the logits.
        contrast: the arguments of ContrastiveLoss.
    """

    needs = Needs(negatives=True)

    def __init__(
        self, guide: str | Path, pooling: str | None = None, sigma: PositiveFloat = 0.17, **contrast: Any
    ) -> None:
        super().__init__(**contrast)
        self.guide, self.sigma = FrozenEncoder(guide, pooling), sigma

    def similarities(self, batch: EmbeddedBatch, views: Sequence[int]) -> Tensor:
        similarities = super().similarities(batch, views)
        hard = [view for view in views[2:] if batch.roles[view] == Role.NEGATIVE]
        if not hard:  # the other direction of a symmetric loss
            return similarities
        first, m = views.index(hard[0]) - 1, len(batch.gathered)  # each view but the anchor has m columns
        columns = batch.targets[:, None] + m * (first + torch.arange(len(hard), device=similarities.device))
        guided = self.guide.embed(batch)
        taught = paired_similarity(guided[:, views[0], None], select_views(guided, hard))
        similarity = similarities.detach().gather(1, columns)
        excess = (similarity - taught) / self.temperature
        decay = similarity * torch.exp(-((excess / self.sigma) ** 2) / 2)
        return similarities.scatter_add(1, columns, -decay.masked_fill(excess > 0, 0).to(similarities))
