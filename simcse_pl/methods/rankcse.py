"""RankCSE (Liu et al. 2023): views and teachers should rank the sentences of a batch alike."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from simcse_pl.losses.frozen_encoder import FrozenEncoder, TaughtLoss
from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs
from simcse_pl.utils.tensors import similarity_matrix
from simcse_pl.utils.types import Role


def list_net(scores: Tensor, teacher_scores: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of two rankings by their distributions of the first place (Cao et al. 2007).

        -sum_j softmax(teacher_scores)_j log softmax(scores)_j    over j != label

    Args:
        scores: [n, m], the student's.
        teacher_scores: [n, m], the teacher's.
        labels: [n], the column of each anchor's own positive, which is left out.

    Returns:
        The mean over the rows, a scalar; 0 if there is one column only.
    """
    left_out = F.one_hot(labels, scores.shape[1]).bool()
    lowest = torch.finfo(scores.dtype).min  # -inf would give nan if no other column is left
    log_p = scores.masked_fill(left_out, lowest).log_softmax(dim=1)
    q = teacher_scores.masked_fill(left_out, lowest).softmax(dim=1)
    return -(q * log_p.masked_fill(left_out, 0)).sum(dim=1).mean()


def list_mle(scores: Tensor, teacher_scores: Tensor, labels: Tensor) -> Tensor:
    """Return the negative log-likelihood of the teacher's ranking (Xia et al. 2008).

        -sum_k log( exp(scores_pi(k)) / sum_{l >= k} exp(scores_pi(l)) )

    where pi orders the columns by `teacher_scores`, the largest first. The arguments are those of `list_net`, but no
    column is left out.

    Returns:
        The mean over the rows, a scalar.
    """
    order = teacher_scores.argsort(dim=1, descending=True, stable=True)
    ordered = scores.gather(1, order)
    return (ordered.flip(1).logcumsumexp(dim=1).flip(1) - ordered).sum(dim=1).mean()


class RankingConsistency(Loss):
    """The difference between the two rankings of a batch that two views of a sentence give (Liu et al. 2023).

    In plain terms: an anchor and its positive should rank the other sentences alike. For the cosines
    S(h_i, h'_j) of anchors with positives, the loss is the mean over the rows i of the Jensen-Shannon divergence

        JS( softmax_j(S(h_i, h'_j) / t), softmax_j(S(h'_i, h_j) / t) )

    Args:
        weight: beta.
        temperature: t.
    """

    needs = Needs(labels="any")

    def __init__(self, weight: NonNegativeFloat = 1.0, temperature: PositiveFloat = 0.05) -> None:
        super().__init__(weight)
        self.temperature = temperature

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        anchor, positive, *_ = batch.views(Role.ANCHOR, Role.POSITIVE)
        log_p, log_q = (
            (similarity_matrix(batch.embeddings[:, i], batch.gathered[:, j]) / self.temperature).log_softmax(dim=1)
            for i, j in ((anchor, positive), (positive, anchor))
        )
        log_mean = torch.logaddexp(log_p, log_q) - math.log(2)
        divergences = (F.kl_div(log_mean, log, reduction="none", log_target=True) for log in (log_p, log_q))
        return torch.stack(list(divergences)).mean(dim=0).sum(dim=1).mean()


class RankingDistillation(TaughtLoss):
    """The difference between a batch's ranking by the encoder and by one or two teachers (Liu et al. 2023).

    In plain terms: each anchor should rank the positives of all rows as the teachers do; see `list_net`
    and `list_mle`. The teachers' scores are alpha S_1 / t_T + (1 - alpha) S_2 / t_T for their cosines
    S_1 and S_2, the encoder's are S / t.

    Args:
        teachers, pooling: one or two teachers, and the pooling of both (see FrozenEncoder).
        loss: `list_net` or `list_mle`.
        alpha: the share of the first teacher. No effect with one teacher.
        temperature: t.
        teacher_temperature: t_T. No effect on `list_mle`.
        weight: gamma.
    """

    needs = Needs(labels="any")

    def __init__(
        self,
        teachers: Annotated[Sequence[str], Field(min_length=1, max_length=2)],
        pooling: str | None = None,
        loss: Literal["list_net", "list_mle"] = "list_mle",
        alpha: Annotated[float, Field(ge=0, le=1)] = 0.33,
        temperature: PositiveFloat = 0.05,
        teacher_temperature: PositiveFloat = 0.025,
        weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(weight)
        self.loss, self.temperature, self.teacher_temperature = loss, temperature, teacher_temperature
        self.shares = [alpha, 1 - alpha] if len(teachers) == 2 else [1.0]
        self.teachers = nn.ModuleList(FrozenEncoder(name, pooling) for name in teachers)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        anchor, positive, *_ = batch.views(Role.ANCHOR, Role.POSITIVE)
        taught = [teacher.embed(batch) for teacher in self.teachers if isinstance(teacher, FrozenEncoder)]
        gathered = batch.gather(torch.cat([x[:, positive] for x in taught], dim=1))
        gathered = gathered.split([x.shape[2] for x in taught], dim=1)
        scores = similarity_matrix(batch.embeddings[:, anchor], batch.gathered[:, positive]) / self.temperature
        teacher_scores = torch.zeros_like(scores)
        for share, vectors, others in zip(self.shares, taught, gathered, strict=True):
            teacher_scores += share * similarity_matrix(vectors[:, anchor], others) / self.teacher_temperature
        rank = list_net if self.loss == "list_net" else list_mle
        return rank(scores, teacher_scores, batch.targets)
