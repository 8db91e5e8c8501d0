"""Objectives: what is minimized, as modules that hold an objective's settings and check them."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simcse_pl.losses.duplicates import duplicate_negatives
from simcse_pl.losses.functional import SIMILARITIES, contrastive_loss, near_negatives, siamese_softmax_loss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.distributed import all_gather_with_grad, split_batch
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.validation import check_non_negative, check_positive


class Objective(nn.Module, ABC):
    """What is minimized, over the embeddings of all views of a batch.

    Attributes:
        contrasts: whether the other rows of a batch are negatives.
        curves: scalars of the last batch to log, by name.
    """

    contrasts: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.curves: dict[str, Tensor] = {}

    def attach(self, dim: int) -> None:
        """Take the dimension of the embeddings, once and before training; may add parameters."""

    @abstractmethod
    def check_rows(self, views: int, labeled: bool) -> None:
        """Refuse rows that there is no loss of.

        Args:
            views: sentences of a row, with a positive that a view makes.
            labeled: whether rows have a class.

        Raises:
            UserError: rows without what the objective needs, or with what it has no use for.
        """

    @abstractmethod
    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        queue: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        """The loss of this device's rows, a scalar; its mean over devices is the loss of the whole batch.

        Args:
            embeddings: [batch, views, dim].
            labels: [batch] int64, where the data has them.
            queue: [any number, dim], embeddings of batches before that are negatives too.
            keys: [batch, views], equal for equal sentences (see duplicates.hash_token_ids).

        Raises:
            UserError: rows without what the objective needs, or with what it has no use for.
        """


class ContrastiveObjective(Objective):
    """SimCSE's objective over the batch of all devices (equations 1, 4, 5 and 8 of the paper).

    Args:
        temperature: divides the similarities; above 0. The paper's is 0.05 (Table D.1).
        hard_negative_weight: alpha of equation 8, 0 or more; no effect where rows have no hard negatives.
        similarity: `cosine`, or `dot` for the inner product.
        mask_duplicates: leave negatives of the batch that are a row's own sentences over again out of its loss (see
            duplicates); those of a queue, of which embeddings alone are kept, stay in it.
        false_negative_threshold: leave out, too, what is nearer to the anchor than this cosine, -1 to 1; None for none.
        guide: the encoder whose cosines the threshold is for, by name (see SentenceEncoder.from_pretrained): a fixed
            one, as in DCLR and GISTEmbed, which is not saved. It must have the trained encoder's vocabulary. None for
            the encoder that is trained.

    Raises:
        UserError: a value out of range, a guide without a threshold, or one that cannot be loaded.

    Attributes:
        guide: the encoder, or None.
    """

    contrasts = True
    decoupled: ClassVar[bool] = False

    def __init__(
        self,
        temperature: float = 0.05,
        hard_negative_weight: float = 1.0,
        similarity: str = "cosine",
        mask_duplicates: bool = False,
        false_negative_threshold: float | None = None,
        guide: str | Path | None = None,
    ) -> None:
        super().__init__()
        check_positive("objective.temperature", temperature)
        check_non_negative("objective.hard_negative_weight", hard_negative_weight)
        if similarity not in SIMILARITIES:
            raise UserError(f"objective.similarity={similarity}: choose one of {', '.join(SIMILARITIES)}")
        threshold = false_negative_threshold
        if threshold is not None and not -1 <= threshold <= 1:
            raise UserError(f"objective.false_negative_threshold={threshold}: it must be -1 to 1, or null")
        if guide is not None and threshold is None:
            raise UserError(f"objective.guide={guide}: set objective.false_negative_threshold, which it is for")
        self.temperature = temperature
        self.hard_negative_weight = hard_negative_weight
        self.similarity = similarity
        self.mask_duplicates = mask_duplicates
        self.false_negative_threshold = false_negative_threshold
        # in a list: a submodule would be in checkpoints, and would be trained
        self._guide = [] if guide is None else [SentenceEncoder.from_pretrained(guide).requires_grad_(False)]

    @property
    def guide(self) -> SentenceEncoder | None:
        """The encoder whose cosines the threshold is for; None for the encoder that is trained."""
        return self._guide[0] if self._guide else None

    def check_rows(self, views: int, labeled: bool) -> None:
        """Refuse labels: a contrast has no classes."""
        if labeled:
            raise UserError("a contrast has no use for labels: set data.label_column=null, or objective=sbert")

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        queue: Tensor | None = None,
        keys: Tensor | None = None,
        guides: Tensor | None = None,
    ) -> Tensor:
        """The loss of this device's rows against the rows of all devices; its mean over them is that of the batch.

        Args:
            embeddings: [batch, views, dim]: anchor, positive, then any hard negatives.
            labels: None; a contrast has no classes.
            queue: [any number, dim], further negatives.
            keys: [batch, views], needed to mask duplicates.
            guides: [batch, views, any dim], the guide's embeddings.

        Returns:
            A scalar.

        Raises:
            UserError: rows that have labels.
        """
        self.check_rows(embeddings.shape[1], labels is not None)
        own = split_batch(len(embeddings), embeddings.device)
        others = all_gather_with_grad(embeddings[:, 1:], own)
        negative_mask = None
        if self.mask_duplicates and keys is not None:
            negative_mask = duplicate_negatives(keys, all_gather_with_grad(keys, own), own.label_offset)
        if self.false_negative_threshold is not None:
            anchors, others_seen = embeddings[:, 0], others
            if guides is not None:
                anchors, others_seen = guides[:, 0], all_gather_with_grad(guides[:, 1:], own)
            near = near_negatives(
                anchors,
                others_seen[:, 0],
                others_seen[:, 1:],
                None if guides is not None else queue,
                threshold=self.false_negative_threshold,
                label_offset=own.label_offset,
            )
            negatives = near.shape[1] - embeddings.shape[1] + 1  # without a row's own
            self.curves["masked_negatives"] = near.sum(dim=1).float().mean() / max(1, negatives)
            negative_mask = (
                near
                if negative_mask is None
                else near | F.pad(negative_mask, (0, near.shape[1] - negative_mask.shape[1]))
            )
        return own.weight * contrastive_loss(
            embeddings[:, 0],
            others[:, 0],
            others[:, 1:],
            queue,
            temperature=self.temperature,
            hard_negative_weight=self.hard_negative_weight,
            similarity=self.similarity,
            label_offset=own.label_offset,
            negative_mask=negative_mask,
            decoupled=self.decoupled,
        )


class DecoupledContrastiveObjective(ContrastiveObjective):
    """The same without a row's own positive among what it is contrasted with (Yeh et al. 2022)."""

    decoupled = True


class SoftmaxObjective(Objective):
    """The siamese classifier of Sentence-BERT, for pairs with a label such as NLI's (Reimers and Gurevych 2019).

    Its weights are W_t of their equation, without a bias; they train with the encoder and are of no use afterwards.
    `attach` makes them, from torch's global random state, as the projection head's are.

    Args:
        labels: how many classes there are, 2 or more; 3 in NLI. A batch's labels count from 0.

    Raises:
        UserError: a value out of range.

    Examples:
        >>> objective = SoftmaxObjective(labels=3)
        >>> objective.attach(dim=8)
        >>> objective(torch.randn(4, 2, 8), torch.tensor([0, 2, 1, 0])).shape
        torch.Size([])
    """

    contrasts = False
    classifier: nn.Linear

    def __init__(self, labels: int = 3) -> None:
        super().__init__()
        if labels < 2:
            raise UserError(f"objective.labels={labels}: it must be at least 2")
        self.labels = labels

    def attach(self, dim: int) -> None:
        """Make the classifier's weights, [labels, 3 dim]."""
        self.classifier = nn.Linear(3 * dim, self.labels, bias=False)

    def check_rows(self, views: int, labeled: bool) -> None:
        """Refuse what is not a pair with a label."""
        if views != 2:
            raise UserError(f"objective=sbert takes pairs, and rows have {views} sentences: name two in data.columns")
        if not labeled:
            raise UserError("objective=sbert needs a label for every pair: set data.label_column")

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        queue: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        """The loss of this device's pairs; its mean over devices is that of all pairs.

        Args:
            embeddings: [batch, 2, dim].
            labels: [batch] int64, from 0.
            queue: of no use; SimCSEModule refuses one.
            keys: of no use.

        Returns:
            A scalar.

        Raises:
            UserError: rows that are not pairs, no labels, or one out of range.
        """
        self.check_rows(embeddings.shape[1], labels is not None)
        assert labels is not None
        odd = labels[(labels < 0) | (labels >= self.labels)]
        if len(odd):
            raise UserError(
                f"objective.labels={self.labels}: a row has label {int(odd[0])}, counted from 0: "
                "set objective.labels to how many the data has, or choose another data.label_column"
            )
        weight = split_batch(len(embeddings), embeddings.device).weight
        return weight * siamese_softmax_loss(embeddings[:, 0], embeddings[:, 1], labels, self.classifier.weight)


@torch.no_grad()
def mean_similarities(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """The mean cosine of the anchors with their positives, and with everything else in this device's batch.

    Args:
        embeddings: [batch, views, dim].

    Returns:
        Two scalars; the second is not a number where there are no negatives.
    """
    anchors, others = unit_vectors(embeddings[:, 0]), unit_vectors(embeddings[:, 1:])
    positive = (anchors * others[:, 0]).sum(dim=-1)
    everything = (anchors.sum(dim=0) * others.flatten(0, 1).sum(dim=0)).sum()  # autocast would take an @ down
    negatives = len(anchors) * (others.shape[0] * others.shape[1] - 1)
    return positive.mean(), (everything - positive.sum()) / negatives if negatives else everything * torch.nan
