"""Losses that train an encoder to imitate another one, the teacher, or the margins and scores that it has found."""

from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from simcse_pl.losses.frozen_encoder import FrozenEncoder, TaughtLoss
from simcse_pl.losses.loss import EmbeddedBatch, Needs, check_head_is_kept, select_views
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError, prefixed
from simcse_pl.utils.tensors import Similarity, at_least_float32, paired_similarity, similarity_matrix, unit_vectors
from simcse_pl.utils.types import Role, RowKind, candidates


class _Distillation(TaughtLoss):
    def __init__(self, teacher: FrozenEncoder | None, weight: float) -> None:
        super().__init__(weight)
        self.teacher, self.normalize = teacher, False

    def attach(self, encoder: SentenceEncoder) -> None:
        """Find out whether the teacher reads the encoder's token ids, and vectors are compared at length 1."""
        super().attach(encoder)
        self.normalize = encoder.normalize or (self.teacher is not None and self.teacher.normalize)

    def scaled(self, vectors: Tensor) -> Tensor:
        """Return vectors as they are compared."""
        # Without this, an encoder whose vectors are longer makes its tokens cancel out, which destroys the vectors.
        return unit_vectors(vectors) if self.normalize else at_least_float32(vectors)


class EmbeddingDistillation(_Distillation):
    """The distance between the encoder's vectors and those of a teacher (EmbedDistill, Kim et al. 2023).

    In plain terms: each sentence of a row should have the teacher's vector. With translations of a sentence that the
    teacher knows, the encoder learns further languages (Reimers and Gurevych 2020). If one of the two encoders
    normalizes, vectors of length 1 are compared. The encoder needs a head that is kept at test time, or none. If the
    two have different numbers of dimensions, the encoder's vectors pass through a linear layer first, which is trained
    and not saved with the encoder.

    Args:
        teacher, pooling: see FrozenEncoder.
        loss: `mse`, the squared error averaged over dimensions, or `cosine`, 1 minus the cosine. For vectors of length
            1, the squared error is the cosine loss times 2 / dim.
        target: whose vector a sentence learns: its `own`, or that of the `anchor`, whose translation it is.
    """

    teacher: FrozenEncoder

    def __init__(
        self,
        teacher: str | Path,
        pooling: str | None = None,
        loss: Literal["mse", "cosine"] = "mse",
        target: Literal["own", "anchor"] = "own",
        weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(FrozenEncoder(teacher, pooling, anchors_only=target == "anchor"), weight)
        self.loss = loss
        self.projection: nn.Linear | None = None

    def attach(self, encoder: SentenceEncoder) -> None:
        super().attach(encoder)
        check_head_is_kept(encoder)
        if self.teacher.dim != encoder.embedding_dim:
            self.projection = nn.Linear(encoder.embedding_dim, self.teacher.dim)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        vectors = self.scaled(batch.embeddings if self.projection is None else self.projection(batch.embeddings))
        taught = self.scaled(self.teacher.embed(batch))
        if self.loss == "cosine":
            return 1 - paired_similarity(vectors, taught).mean()
        return (vectors - taught).square().mean()


class MarginMSE(_Distillation):
    """The squared difference between the margins of the encoder and of a teacher (Hofstätter et al. 2020).

    In plain terms: a hard negative should be farther from the anchor than the positive by as much as the teacher
    finds. For an anchor a, positive p and negative n it is the mean over rows, and over a row's negatives, of

        ( (s(a, p) - s(a, n)) - (s_T(a, p) - s_T(a, n)) )^2

    If one of the two encoders normalizes, s and s_T are those of vectors of length 1.

    Args:
        teacher, pooling: see FrozenEncoder. Without a teacher, its margins are the scores of the rows, as a
            cross-encoder may have given them; a row has one negative.
        similarity: `cosine`, or `dot` as in the paper.
    """

    truncatable = True
    needs = Needs(positives=1, negatives=True)

    def __init__(
        self,
        teacher: str | Path | None = None,
        pooling: str | None = None,
        similarity: Similarity = "cosine",
        weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(None if teacher is None else FrozenEncoder(teacher, pooling), weight)
        self.similarity = similarity
        if teacher is None:
            self.needs = Needs(positives=1, negatives=True, labels="scores")

    def check_rows(self, rows: RowKind) -> None:
        with prefixed("teacher=null" if self.teacher is None else ""):
            super().check_rows(rows)
        lowest, highest = rows.label_range or (0, 0)
        if self.similarity == "cosine" and max(-lowest, highest) > 2:
            raise UserError(f"similarity=cosine: no cosines have margins of {lowest:g} to {highest:g}: set it to dot")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        margins = self._margins(batch, batch.embeddings)
        if self.teacher is None:
            assert batch.labels is not None
            taught = batch.labels[:, None]
        else:
            taught = self._margins(batch, self.teacher.embed(batch))
        differences = (margins - taught).square()
        if batch.copies is None:
            return differences.mean()
        negatives = ~select_views(batch.copies, batch.views(Role.NEGATIVE))
        return ((differences * negatives).sum(dim=1) / negatives.sum(dim=1).clamp(min=1)).mean()

    def _margins(self, batch: EmbeddedBatch, vectors: Tensor) -> Tensor:
        """Return the margins [batch, negatives] of vectors [batch, views, dim]."""
        vectors = self.scaled(vectors)
        nearness, *others = (
            paired_similarity(vectors[:, 0], vectors[:, view], self.similarity)
            for view in batch.views(Role.POSITIVE, Role.NEGATIVE)
        )
        return torch.stack([nearness - other for other in others], dim=1)


class ListwiseDistillation(_Distillation):
    """The divergence of the encoder's ranking of positives and hard negatives from a teacher's (Ren et al. 2021).

    In plain terms: the encoder should spread an anchor's attention over its candidates as the teacher does, so that a
    false negative, which the teacher scores high, is not pushed away. For the candidates c of an anchor a it is the
    mean over anchors of KL(q || p) with

        q_c = softmax_c( s_T(a, c) / t_T ),    p_c = softmax_c( s(a, c) / t )

    It is the dynamic listwise distillation of RocketQAv2, and, apart from the entropy of q, which has no gradient, the
    distillation of BGE's training code. If one of the two encoders normalizes, s and s_T are those of vectors of
    length 1.

    Args:
        teacher, pooling: see FrozenEncoder. The candidates are the positives and the hard negatives of all rows of the
            batch. Without a teacher, each row has a score for each of its positives and hard negatives, as a
            cross-encoder may have given them, and these are the candidates.
        similarity: `cosine` or `dot`.
        temperature: t.
        teacher_temperature: t_T; None takes t for a teacher, whose similarities are of the same kind, and 1 for scores.
    """

    truncatable = True
    needs = Needs()

    def __init__(
        self,
        teacher: str | Path | None = None,
        pooling: str | None = None,
        similarity: Similarity = "cosine",
        temperature: PositiveFloat = 0.05,
        teacher_temperature: PositiveFloat | None = None,
        weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(None if teacher is None else FrozenEncoder(teacher, pooling), weight)
        self.similarity, self.temperature = similarity, temperature
        self.teacher_temperature = teacher_temperature or (1.0 if teacher is None else temperature)
        if teacher is None:
            self.needs = Needs(labels="score_lists")

    def check_rows(self, rows: RowKind) -> None:
        super().check_rows(rows)
        if self.teacher is None and rows.labels != "score_lists":
            raise UserError("teacher=null: set data.score_column=[...], a column for each positive and hard negative")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        views = candidates(batch.roles)
        anchors = self.scaled(batch.embeddings[:, 0])
        if self.teacher is None:
            assert batch.labels is not None
            taught = batch.labels
            others = self.scaled(select_views(batch.embeddings, views))
            scores = paired_similarity(anchors[:, None], others, self.similarity)
        else:
            vectors = self.scaled(self.teacher.embed(batch))
            taught = self._of_all(vectors[:, 0], batch.gather(vectors), views)
            scores = self._of_all(anchors, self.scaled(batch.gathered), views)
        logits = [scores / self.temperature, taught.to(scores) / self.teacher_temperature]
        if batch.gathered_copies is not None and self.teacher is not None:
            copies = select_views(batch.gathered_copies, views).flatten()
            logits = [x.masked_fill(copies, torch.finfo(x.dtype).min) for x in logits]  # -inf gives nan below
        log_p, log_q = (x.log_softmax(dim=1) for x in logits)
        return F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)

    def _of_all(self, anchors: Tensor, rows: Tensor, views: list[int]) -> Tensor:
        """Return the similarities [n, m views] of anchors [n, dim] with some views of rows [m, all views, dim]."""
        return similarity_matrix(anchors, select_views(rows, views).flatten(0, 1), self.similarity)
