"""GS-InfoNCE (Wu et al. 2022): Gaussian random vectors are additional negatives."""

from typing import Any

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.utils.distributed import from_first_rank


class GaussianNegatives(ContrastiveLoss):
    """The contrastive loss with random vectors as further negatives (GS-InfoNCE, Wu et al. 2022).

    In plain terms: each anchor should also be dissimilar to noise. For g_1, ..., g_size drawn from
    N(0, std^2 I) in each step, the same for all anchors and devices, the sum of `contrastive_loss` for h_i
    also has

        sum_k exp(sim(h_i, g_k) / t)

    Args:
        size: the number of random vectors.
        std: their standard deviation. It has no effect on cosines.
        contrast: the arguments of ContrastiveLoss.
    """

    def __init__(self, size: PositiveInt = 192, std: PositiveFloat = 0.5, **contrast: Any) -> None:
        super().__init__(**contrast)
        self.size, self.std = size, std

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        drawn = self.std * torch.randn(self.size, batch.embeddings.shape[-1], device=batch.embeddings.device)
        noise = from_first_rank(drawn)
        queue = noise if batch.queue is None else torch.cat([batch.queue, noise])
        return super().forward(batch.replaced(queue=queue))
