"""Auxiliary losses on the ranking of a batch's sentences by similarity: RankCSE (Liu et al. 2023)."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.frozen_encoder import FrozenEncoder
from simcse_pl.losses.functional import similarity_matrix
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.validation import check_positive


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


LOSSES = {"list_net": list_net, "list_mle": list_mle}


def _similarities(batch: EmbeddedBatch, embeddings: Tensor, rows: Role, columns: Role) -> Tensor:
    """Return the cosines of a view of this device's rows with a view of all rows, [batch, m]."""
    (first, *_), (second, *_) = batch.views(rows), batch.views(columns)
    return similarity_matrix(embeddings[:, first], batch.gather(embeddings[:, second]))


class RankingConsistency(AuxiliaryLoss):
    """The difference between the two rankings of a batch that two views of a sentence give (Liu et al. 2023).

    In plain terms: an anchor and its positive should rank the other sentences alike. For the cosines
    S(h_i, h'_j) of anchors with positives, the loss is the mean over the rows i of the Jensen-Shannon divergence

        JS( softmax_j(S(h_i, h'_j) / t), softmax_j(S(h'_i, h_j) / t) )

    Args:
        weight: beta, 0 or more.
        temperature: t, above 0.
    """

    name = "ranking_consistency"
    needs_positive = True

    def __init__(self, weight: float = 1.0, temperature: float = 0.05) -> None:
        super().__init__(weight)
        check_positive(f"{self.option}.temperature", temperature)
        self.temperature = temperature

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the mean over this device's rows."""
        views = (Role.ANCHOR, Role.POSITIVE)
        log_p, log_q = (
            (_similarities(batch, batch.embeddings, *order) / self.temperature).log_softmax(dim=1)
            for order in (views, views[::-1])
        )
        log_mean = torch.logaddexp(log_p, log_q) - math.log(2)
        divergences = (F.kl_div(log_mean, one, reduction="none", log_target=True) for one in (log_p, log_q))
        return batch.split.weight * torch.stack(list(divergences)).mean(dim=0).sum(dim=1).mean()


class RankingDistillation(AuxiliaryLoss):
    """The difference between a batch's ranking by the encoder and by one or two teachers (Liu et al. 2023).

    In plain terms: each anchor should rank the positives of all rows as the teachers do; see `list_net`
    and `list_mle`. The teachers' scores are alpha S_1 / t_T + (1 - alpha) S_2 / t_T for their cosines
    S_1 and S_2, the encoder's are S / t.

    Args:
        weight: gamma, 0 or more.
        teachers: one or two folders, hub names or package:NAME, with the vocabulary of the encoder.
        pooling: of the teachers; None takes what they were saved with.
        loss: `list_net` or `list_mle`.
        alpha: the share of the first teacher, 0 to 1. No effect with one teacher.
        temperature: t, above 0.
        teacher_temperature: t_T, above 0. No effect on `list_mle`.
    """

    name = "ranking_distillation"
    needs_positive = True

    def __init__(
        self,
        teachers: Sequence[str],
        weight: float = 1.0,
        pooling: str | None = None,
        loss: str = "list_mle",
        alpha: float = 0.33,
        temperature: float = 0.05,
        teacher_temperature: float = 0.025,
    ) -> None:
        super().__init__(weight)
        if loss not in LOSSES:
            raise UserError(f"{self.option}.loss={loss}: choose one of {', '.join(LOSSES)}")
        if not 1 <= len(teachers) <= 2:
            raise UserError(f"{self.option}.teachers: give one or two, not {len(teachers)}")
        if not 0 <= alpha <= 1:
            raise UserError(f"{self.option}.alpha={alpha}: it must be 0 to 1")
        check_positive(f"{self.option}.temperature", temperature)
        check_positive(f"{self.option}.teacher_temperature", teacher_temperature)
        self.loss, self.temperature, self.teacher_temperature = loss, temperature, teacher_temperature
        self.shares = [alpha, 1 - alpha] if len(teachers) == 2 else [1.0]
        self.teachers = nn.ModuleList(FrozenEncoder(name, pooling) for name in teachers)

    def attach(self, encoder: SentenceEncoder) -> None:
        """Check that the teachers read the encoder's token ids."""
        for number, teacher in enumerate(self.teachers):
            assert isinstance(teacher, FrozenEncoder)
            teacher.check_vocabulary(encoder, f"{self.option}.teachers[{number}]")

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the mean over this device's anchors."""
        views = (Role.ANCHOR, Role.POSITIVE)
        scores = _similarities(batch, batch.embeddings, *views) / self.temperature
        teacher_scores = torch.zeros_like(scores)
        for share, teacher in zip(self.shares, self.teachers, strict=True):
            assert isinstance(teacher, FrozenEncoder)
            similarities = _similarities(batch, teacher.embed(batch.inputs), *views)
            teacher_scores += share * similarities / self.teacher_temperature
        labels = batch.split.label_offset + torch.arange(len(scores), device=scores.device)
        return batch.split.weight * LOSSES[self.loss](scores, teacher_scores, labels)
