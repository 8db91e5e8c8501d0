"""DCLR (Zhou et al. 2022): fewer false negatives, and adversarially perturbed noise as further negatives."""

from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat
from torch import Tensor

from simcse_pl.losses.contrastive import contrastive_loss
from simcse_pl.losses.frozen_encoder import FrozenEncoder, TaughtLoss
from simcse_pl.losses.loss import EmbeddedBatch, Needs
from simcse_pl.utils.distributed import from_first_rank
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import at_least_float32, similarity_matrix, unit_vectors
from simcse_pl.utils.types import Role


class DebiasedLoss(TaughtLoss):
    """The loss of debiased contrastive learning (DCLR, Zhou et al. 2022, section 3), as in its released code.

    In plain terms: random vectors are further negatives, and are moved to where the contrastive loss is larger. A
    negative of the batch that a fixed encoder finds similar to the anchor is probably a false negative. Its logit is
    replaced by 0, so its own similarity gets no gradient.

    For the anchors h_i and positives h_j+ of m rows, and the noise n_1, ..., n_k, let

        s_ij = cos(h_i, h_j+) / t for j = 1..m, but 0 if i != j and the fixed encoder's cosine is above the threshold
        s_ij = cos(h_i, n_(j - m)) / t for j = m + 1..m + k
        p_ij = exp(s_ij) / sum_l exp(s_il)

    The loss is the mean cross-entropy of these probabilities, with the label 1 for i = j and 0 for all others,

        -1 / (m (m + k)) sum_i ( log p_ii + sum_(j != i) log(1 - p_ij) )

    The noise is drawn from N(0, I) in each training step, the same for all anchors and devices. Each noise vector then
    takes `noise_steps` ascent steps of length `noise_step_size` along the normalized gradient of `contrastive_loss`, in
    which no negative is masked.

    Args:
        guide, pooling: the fixed encoder (see FrozenEncoder). It is not saved.
        temperature: t.
        threshold: phi.
        noise_ratio: k / m; k is rounded down.
        noise_steps: the number of ascent steps.
        noise_step_size: the length of an ascent step.
    """

    contrasts = True
    needs = Needs(positives=1, negatives=False)

    def __init__(
        self,
        guide: str | Path,
        temperature: PositiveFloat = 0.05,
        threshold: Annotated[float, Field(ge=-1, le=1)] = 0.9,
        noise_ratio: NonNegativeFloat = 1.0,
        noise_steps: NonNegativeInt = 4,
        noise_step_size: NonNegativeFloat = 1e-3,
        weight: NonNegativeFloat = 1.0,
        pooling: str | None = None,
    ) -> None:
        super().__init__(weight)
        self.temperature, self.threshold, self.noise_ratio = temperature, threshold, noise_ratio
        self.noise_steps, self.noise_step_size = noise_steps, noise_step_size
        self.guide = FrozenEncoder(guide, pooling)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        if batch.queue is not None:
            raise UserError("this loss has noise in place of a queue: set queue=null")
        anchor, positive = batch.views(Role.ANCHOR, Role.POSITIVE)
        guided = self.guide.embed(batch)
        near = similarity_matrix(guided[:, anchor], batch.gather(guided[:, positive])) > self.threshold
        gathered, is_positive = batch.gathered, batch.is_itself()
        near = near & ~is_positive
        batch.log("masked_negatives", near.sum(dim=1).float().mean() / max(1, len(gathered) - 1))
        noise = self._noise(gathered[:, anchor], gathered[:, positive])
        cosines = [similarity_matrix(batch.embeddings[:, anchor], keys) for keys in (gathered[:, positive], noise)]
        scores = torch.cat([cosines[0].masked_fill(near, 0), cosines[1]], dim=1) / self.temperature
        log_p = scores.log_softmax(dim=1)
        log_not_p = torch.log1p(-log_p.exp().clamp(max=1 - torch.finfo(log_p.dtype).eps))  # log(0) is infinite
        return -torch.where(F.pad(is_positive, (0, len(noise))), log_p, log_not_p).mean()

    def _noise(self, anchors: Tensor, positives: Tensor) -> Tensor:
        """Return the noise vectors after the ascent steps, [k, dim], for the rows of all devices."""
        with torch.inference_mode(False), torch.enable_grad():  # the loss of held-out rows has neither
            anchors, positives = (at_least_float32(x.detach()).clone() for x in (anchors, positives))
            noise = from_first_rank(anchors.new_empty(int(self.noise_ratio * len(anchors)), anchors.shape[1]).normal_())
            for _ in range(self.noise_steps if len(noise) else 0):
                noise.requires_grad_()
                loss = contrastive_loss(anchors, positives, queue=noise, temperature=self.temperature)
                (gradient,) = torch.autograd.grad(loss, noise)
                noise = noise.detach() + self.noise_step_size * unit_vectors(gradient)
            return noise.detach()
