"""Contrastive objectives with other negatives: noise, mixtures, and embeddings without dropout."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.functional import paired_similarity, similarity_matrix
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.distributed import from_first_rank
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.validation import check_positive


class GaussianNegatives(ContrastiveObjective):
    """The contrastive loss with random vectors as further negatives (GS-InfoNCE, Wu et al. 2022).

    In plain terms: each anchor should also be dissimilar to noise. For g_1, ..., g_size drawn from
    N(0, std^2 I) in each step, the same for all anchors and devices, the sum of `contrastive_loss` for h_i
    also has

        sum_k exp(sim(h_i, g_k) / t)

    Args:
        size: the number of random vectors, 1 or more.
        std: their standard deviation, above 0. It has no effect on cosines.
        contrast: the arguments of ContrastiveObjective.
    """

    def __init__(self, size: int = 192, std: float = 0.5, **contrast: Any) -> None:
        super().__init__(**contrast)
        if size < 1:
            raise UserError(f"objective.size={size}: it must be at least 1")
        check_positive("objective.std", std)
        self.size, self.std = size, std

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's anchors; draw the noise from the first device's random state."""
        drawn = self.std * torch.randn(self.size, batch.embeddings.shape[-1], device=batch.embeddings.device)
        noise = from_first_rank(drawn)
        queue = noise if batch.queue is None else torch.cat([batch.queue, noise])
        return super().forward(replace(batch, queue=queue))


class MixedNegatives(ContrastiveObjective):
    """The contrastive loss with mixtures of two sentences as further negatives (MixCSE, Zhang et al. 2022).

    In plain terms: a vector between the positive of an anchor and that of another row is a hard
    negative. Indices wrap around: after the last row comes the first. Let

        p_i = share h_i+ + (1 - share) h_(i+1)+        a_i = share h_i + (1 - share) h_(i+1)

    without gradients. As in the released code, the sum of `contrastive_loss` for h_i then also has

        sum_(j != i - 1) exp(sim(h_i, p_j) / t) + sum_(j != i + 1) exp(sim(a_i, h_j+) / t) + 2

    Two pairs are excluded: h_i with p_(i-1), which has the share 1 - share of h_i+, and a_i, which has the share
    1 - share of h_(i+1), with h_(i+1)+. Their similarities are set to 0, so each adds exp(0) = 1.

    Args:
        share: lambda, the share of the own row in a mixture, 0 to 1.
        contrast: the arguments of ContrastiveObjective.
    """

    def __init__(self, share: float = 0.2, **contrast: Any) -> None:
        super().__init__(**contrast)
        if not 0 <= share <= 1:
            raise UserError(f"objective.share={share}: it must be 0 to 1")
        self.share = share

    def loss_of_views(
        self, batch: EmbeddedBatch, views: Sequence[int], mask: Tensor | None, **changed: Tensor
    ) -> Tensor:
        """Return the loss with the similarities of both kinds of mixtures."""
        anchors, positives = (batch.gathered[:, view] for view in views[:2])
        count, device = len(batch.embeddings), anchors.device
        rows = batch.split.label_offset + torch.arange(count, device=device)
        mixed_anchors, mixed_positives = (
            self.share * x + (1 - self.share) * x.roll(-1, dims=0) for x in (anchors.detach(), positives.detach())
        )
        own_anchors = batch.embeddings[:, views[0]]
        with_mixtures = similarity_matrix(own_anchors, mixed_positives, self.similarity)
        of_mixtures = similarity_matrix(mixed_anchors[rows], positives, self.similarity)
        before, after = ((rows + step).remainder(len(anchors))[:, None] for step in (-1, 1))
        further = torch.cat([with_mixtures.scatter(1, before, 0), of_mixtures.scatter(1, after, 0)], dim=1)
        return super().loss_of_views(batch, views, mask, further_similarities=further, **changed)


class NegativesWithoutDropout(ContrastiveObjective):
    """The contrastive loss with negatives that are embedded without dropout (SimCSE++, Xu et al. 2023).

    In plain terms: dropout makes the two embeddings of a sentence differ, and should not also
    disturb the comparison with other sentences. With g_i for the anchor embedded once more without
    dropout, the loss is the mean of

        -log( exp(sim(h_i, h_i+) / t) / ( exp(sim(h_i, h_i+) / t) + sum_(j != i) exp(sim(g_i, g_j) / t) ) )

    The gradient includes that of g. The options of ContrastiveObjective apply: a mask leaves out pairs i, j.

    Args:
        contrast: the arguments of ContrastiveObjective.
    """

    truncatable = False
    encoder: SentenceEncoder

    def attach(self, encoder: SentenceEncoder) -> None:
        """Store the encoder, which embeds the anchors once more."""
        super().attach(encoder)
        self.__dict__["encoder"] = encoder  # not a submodule, whose weights would be saved twice

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless rows have one anchor and one positive, and neither hard negatives nor labels."""
        super().check_rows(roles, labels)
        if Role.NEGATIVE in roles or list(roles).count(Role.POSITIVE) > 1:
            raise UserError(
                f"data.roles={[str(role) for role in roles]}: negatives without dropout are the other anchors: "
                "a row needs one positive, and no negative"
            )

    def loss_of_views(
        self, batch: EmbeddedBatch, views: Sequence[int], mask: Tensor | None, **changed: Tensor
    ) -> Tensor:
        """Return the loss, where the negatives are embeddings of `views[0]` without dropout."""
        inputs = {name: tensor[:, views[0], None] for name, tensor in batch.inputs.items()}
        pooled = apply_in_chunks(self._pool_without_dropout, inputs, self.chunk_size)
        plain = self.encoder.project(pooled)[:, 0]
        similarities = paired_similarity(batch.embeddings[:, views[0]], batch.embeddings[:, views[1]], self.similarity)
        compared = {"anchors": plain, "positives": batch.gather(plain), "positive_similarities": similarities}
        return super().loss_of_views(batch, views, mask, **compared, **changed)

    def _pool_without_dropout(self, inputs: Batch) -> Tensor:
        backbone = self.encoder.backbone
        was_training = backbone.training
        backbone.eval()  # also in the backward pass of apply_in_chunks
        try:
            return self.encoder.pool_views(inputs)
        finally:
            backbone.train(was_training)
