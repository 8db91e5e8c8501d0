"""Training objectives: modules that hold and check the settings of a loss function."""

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
    """A loss of the embeddings of all views of a batch.

    Attributes:
        contrasts: whether the other rows of a batch are negatives.
        curves: scalars of the last batch to log, by name.
    """

    contrasts: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.curves: dict[str, Tensor] = {}

    def attach(self, dim: int) -> None:
        """Prepare for embeddings of this dimension, once before training; may add parameters."""

    @abstractmethod
    def check_rows(self, views: int, labeled: bool) -> None:
        """Raise UserError unless the loss is defined for rows of this many views, with or without labels."""

    @abstractmethod
    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        queue: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of this device's rows.

        Args:
            embeddings: [batch, views, dim].
            labels: [batch] int64, if the data has labels.
            queue: [q, dim], embeddings of past batches as further negatives.
            keys: [batch, views], equal for equal sentences (see `hash_token_ids`).

        Returns:
            A scalar. Its mean over devices is the loss of the whole batch.

        Raises:
            UserError: if the loss is not defined for these rows.
        """


class ContrastiveObjective(Objective):
    """SimCSE's contrastive loss over the batch of all devices.

    In plain terms: each anchor should be more similar to its own positive than to the positives and
    hard negatives of the other rows. These are equations 1, 4, 5 and 8 of the paper; see
    `contrastive_loss`.

    Args:
        temperature: divisor of the similarities, above 0 (Table D.1).
        hard_negative_weight: alpha of equation 8, 0 or more. No effect without hard negatives.
        similarity: `cosine`, or `dot` for the inner product.
        mask_duplicates: leave out negatives of the batch that repeat one of the row's own sentences
            (see `duplicate_negatives`). It does not apply to a queue, which stores embeddings only.
        false_negative_threshold: leave out negatives whose cosine with the anchor is above this
            value, -1 to 1. None leaves out none.
        guide: folder or name of a fixed encoder that computes the cosines for the threshold, as in
            DCLR and GISTEmbed. Its vocabulary must be that of the trained encoder, and it is not
            saved. None uses the trained encoder. The attribute is the loaded encoder.

    Raises:
        UserError: if a value is out of range, a guide has no threshold, or it cannot be loaded.
    """

    contrasts = True
    decoupled: ClassVar[bool] = False
    guide: SentenceEncoder | None

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
            raise UserError(f"objective.guide={guide}: it needs objective.false_negative_threshold")
        self.temperature, self.hard_negative_weight, self.similarity = temperature, hard_negative_weight, similarity
        self.mask_duplicates, self.false_negative_threshold = mask_duplicates, threshold
        loaded = None if guide is None else SentenceEncoder.from_pretrained(guide).requires_grad_(False)
        self.__dict__["guide"] = loaded  # not a submodule, whose parameters would be trained and saved

    def check_rows(self, views: int, labeled: bool) -> None:
        """Raise UserError if rows have labels."""
        if labeled:
            raise UserError("a contrastive objective takes no labels: set data.label_column=null, or objective=sbert")

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        queue: Tensor | None = None,
        keys: Tensor | None = None,
        guides: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of this device's anchors against the rows of all devices.

        The arguments are those of `Objective.forward`, with anchor, positive and any hard negatives as
        the views of `embeddings`, and `guides`: [batch, views, any dim], the guide's embeddings.
        """
        self.check_rows(embeddings.shape[1], labels is not None)
        split = split_batch(len(embeddings), embeddings.device)
        anchors, others = embeddings[:, 0], all_gather_with_grad(embeddings[:, 1:], split)
        mask = None
        if self.mask_duplicates and keys is not None:
            mask = duplicate_negatives(keys, all_gather_with_grad(keys, split), split.label_offset)
        if self.false_negative_threshold is not None:
            compared = (anchors, others[:, 0], others[:, 1:], queue)
            if guides is not None:
                guided = all_gather_with_grad(guides[:, 1:], split)
                compared = (guides[:, 0], guided[:, 0], guided[:, 1:], None)
            near = near_negatives(*compared, threshold=self.false_negative_threshold, label_offset=split.label_offset)
            negatives = near.shape[1] - others.shape[1]  # without the row's own positive and hard negatives
            self.curves["masked_negatives"] = near.sum(dim=1).float().mean() / max(1, negatives)
            mask = near if mask is None else near | F.pad(mask, (0, near.shape[1] - mask.shape[1]))
        return split.weight * contrastive_loss(
            anchors,
            others[:, 0],
            others[:, 1:],
            queue,
            temperature=self.temperature,
            hard_negative_weight=self.hard_negative_weight,
            similarity=self.similarity,
            label_offset=split.label_offset,
            negative_mask=mask,
            decoupled=self.decoupled,
        )


class DecoupledContrastiveObjective(ContrastiveObjective):
    """The contrastive loss without an anchor's own positive in its denominator (Yeh et al. 2022)."""

    decoupled = True


class SoftmaxObjective(Objective):
    """The classification loss of Sentence-BERT, for labeled pairs (Reimers and Gurevych 2019).

    In plain terms: a linear classifier predicts the label of a pair from both embeddings and their
    difference; see `siamese_softmax_loss`. `attach` initializes the classifier from torch's global
    random state. It is trained with the encoder and not saved with it.

    Args:
        labels: number of classes, 2 or more; 3 in NLI. A call with other labels raises UserError.
    """

    contrasts = False
    classifier: nn.Linear

    def __init__(self, labels: int = 3) -> None:
        super().__init__()
        if labels < 2:
            raise UserError(f"objective.labels={labels}: it must be at least 2")
        self.labels = labels

    def attach(self, dim: int) -> None:
        """Initialize the classifier's weights, [labels, 3 dim]."""
        self.classifier = nn.Linear(3 * dim, self.labels, bias=False)

    def check_rows(self, views: int, labeled: bool) -> None:
        """Raise UserError unless rows are labeled pairs."""
        if views != 2:
            raise UserError(f"objective=sbert takes pairs, but rows have {views} sentences: name two in data.columns")
        if not labeled:
            raise UserError("objective=sbert needs a label for every pair: set data.label_column")

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        queue: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of this device's labeled pairs; `queue` and `keys` are not used."""
        self.check_rows(embeddings.shape[1], labels is not None)
        assert labels is not None
        invalid = labels[(labels < 0) | (labels >= self.labels)]
        if len(invalid):
            raise UserError(
                f"objective.labels={self.labels}: a row has label {int(invalid[0])}, and labels count from 0: "
                "set objective.labels to the number of classes, or choose another data.label_column"
            )
        weight = split_batch(len(embeddings), embeddings.device).weight
        return weight * siamese_softmax_loss(embeddings[:, 0], embeddings[:, 1], labels, self.classifier.weight)


@torch.no_grad()
def mean_similarities(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean cosine of anchors with their positives, and with this device's negatives.

    For embeddings [batch, views, dim], these are two scalars. Without negatives, the second is nan.
    """
    anchors, others = unit_vectors(embeddings[:, 0]), unit_vectors(embeddings[:, 1:])
    positive = (anchors * others[:, 0]).sum(dim=-1)
    total = (anchors.sum(dim=0) * others.flatten(0, 1).sum(dim=0)).sum()  # @ would be autocast to half precision
    negatives = len(anchors) * (others.shape[0] * others.shape[1] - 1)
    return positive.mean(), (total - positive.sum()) / negatives if negatives else total * torch.nan
