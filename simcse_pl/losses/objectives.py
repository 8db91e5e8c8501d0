"""Training objectives: modules that hold and check the settings of a loss function."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simcse_pl.losses.checks import check_anchor_and_positive, check_pairs
from simcse_pl.losses.duplicates import duplicate_negatives
from simcse_pl.losses.embedded_batch import EmbeddedBatch, select_views
from simcse_pl.losses.frozen_encoder import FrozenEncoder
from simcse_pl.losses.functional import SIMILARITIES, contrastive_loss, near_negatives, siamese_softmax_loss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.validation import check_non_negative, check_positive


class Objective(nn.Module, ABC):
    """A loss of the embeddings of all views of a batch.

    Constructors raise UserError for a value that is out of its range, or a fixed encoder that cannot be loaded.

    Attributes:
        contrasts: whether the other rows of a batch are negatives.
        truncatable: whether the loss is defined for the first dimensions of the embeddings (see MatryoshkaObjective).
        reads_embeddings: whether the loss needs `EmbeddedBatch.embeddings`, and not only its token ids.
        curves: scalars of the last batch to log, by name.
        chunk_size: see AuxiliaryLoss, for objectives that encode the batch once more.
        progress: the share of the training steps that are done, in [0, 1], for weights that change during training.
            SimCSEModule sets it before each step. It is 1 for the loss of held-out rows, and without a trainer.
    """

    contrasts: ClassVar[bool]
    truncatable: ClassVar[bool] = True
    reads_embeddings: ClassVar[bool] = True
    chunk_size: int | None = None
    progress: float = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.curves: dict[str, Tensor] = {}

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare for an encoder, once before training; may add parameters, or raise UserError."""

    @abstractmethod
    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless the loss is defined for rows with these view roles and this kind of label.

        `labels` is None for rows without labels.
        """

    @abstractmethod
    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's rows, a scalar. Its mean over devices is the loss of the whole batch.

        Raises:
            UserError: if the loss is not defined for these rows.
        """

    def held_out_metrics(self, loss: Tensor) -> dict[str, Tensor]:
        """Return the metrics of the held-out rows, given their mean loss."""
        return {"loss": loss}

    def save(self, encoder: SentenceEncoder, folder: Path) -> None:
        """Save the trained encoder."""
        encoder.save_pretrained(folder)


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
            DCLR and GISTEmbed; it needs a threshold. Its vocabulary must be that of the trained encoder, and it is
            not saved. None uses the trained encoder.
        hardness: beta, 0 or more: weight negatives by exp(beta similarity / temperature), divided by the
            mean of these weights (Robinson et al. 2021). 0 gives all negatives the weight 1.
        symmetric: average with the loss of each positive against the anchors of all rows, and the queue.
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
        hardness: float = 0.0,
        symmetric: bool = False,
    ) -> None:
        super().__init__()
        check_positive("objective.temperature", temperature)
        check_non_negative("objective.hard_negative_weight", hard_negative_weight)
        check_non_negative("objective.hardness", hardness)
        if similarity not in SIMILARITIES:
            raise UserError(f"objective.similarity={similarity}: choose one of {', '.join(SIMILARITIES)}")
        threshold = false_negative_threshold
        if threshold is not None and not -1 <= threshold <= 1:
            raise UserError(f"objective.false_negative_threshold={threshold}: it must be -1 to 1, or null")
        if guide is not None and threshold is None:
            raise UserError(f"objective.guide={guide}: it needs objective.false_negative_threshold")
        self.temperature, self.hard_negative_weight, self.similarity = temperature, hard_negative_weight, similarity
        self.mask_duplicates: bool | None = mask_duplicates  # None: not an option of a subclass
        self.false_negative_threshold = threshold
        self.guide = None if guide is None else FrozenEncoder(guide)
        self.hardness, self.symmetric = hardness, symmetric

    def attach(self, encoder: SentenceEncoder) -> None:
        """Check that the guide reads the encoder's token ids."""
        if self.guide:
            self.guide.check_vocabulary(encoder, "objective.guide")

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless rows have one anchor and a positive, and no labels."""
        check_anchor_and_positive(roles, "a contrastive objective")
        if labels:
            option, objective = {"classes": ("label", "sbert"), "scores": ("score", "cosine_mse")}[labels]
            instead = f"data.{option}_column=null, or objective={objective}"
            raise UserError(f"a contrastive objective takes no labels: set {instead}")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's anchors against the rows of all devices.

        With several positives per row, the loss is the mean over them. Each is compared without the row's other
        positives; those of the other rows are negatives.
        """
        self.check_rows(batch.roles, batch.label_kind)
        (anchor,), positives, negatives = map(batch.views, (Role.ANCHOR, Role.POSITIVE, Role.NEGATIVE))
        mask = self._mask_of_repeats(batch, [anchor, *positives, *negatives], len(positives))
        compared = batch.embeddings, batch.gathered, batch.queue
        if self.guide:
            guided = self.guide.embed(batch.inputs)
            compared = guided, batch.gather(guided), None
        comparisons = [
            [anchor, positive, *(view for view in positives if view != positive), *negatives] for positive in positives
        ]
        if self.symmetric:
            comparisons += [[positive, anchor] for positive in positives]
        losses = []
        for views in comparisons:
            left_out = None if mask is None else mask[:, : len(batch.gathered) * (len(views) - 1)]
            if self.false_negative_threshold is not None:
                near = self._near(*compared, views, batch.split.label_offset)
                left_out = near if left_out is None else near | F.pad(left_out, (0, near.shape[1] - left_out.shape[1]))
            losses.append(self.loss_of_views(batch, views, left_out))
        return batch.split.weight * torch.stack(losses).mean()

    def _mask_of_repeats(self, batch: EmbeddedBatch, views: list[int], num_positives: int) -> Tensor | None:
        """Return the `negative_mask` of a row's other positives and of duplicates; it is the same for every positive.

        `views` has the positions of the anchor, the positives and the hard negatives, in this order.
        """
        offset, mask = batch.split.label_offset, None
        if num_positives > 1:
            mask = _own_positives(batch, len(views) - 1, num_positives - 1)
        if self.mask_duplicates:
            hashes = select_views(batch.sentence_hashes, views)
            duplicates = duplicate_negatives(hashes, batch.gather(hashes), offset, num_positives)
            mask = duplicates if mask is None else mask | duplicates
        return mask

    def _near(
        self, embeddings: Tensor, gathered: Tensor, queue: Tensor | None, views: list[int], offset: int
    ) -> Tensor:
        """Return the `negative_mask` of probable false negatives, for the views of `loss_of_views`."""
        assert self.false_negative_threshold is not None
        others = select_views(gathered, views[1:])
        compared = (embeddings[:, views[0]], others[:, 0], others[:, 1:], queue)
        near = near_negatives(*compared, threshold=self.false_negative_threshold, label_offset=offset)
        negatives = near.shape[1] - others.shape[1]  # without the row's own positives and hard negatives
        self.curves["masked_negatives"] = near.sum(dim=1).float().mean() / max(1, negatives)
        return near

    def loss_of_views(
        self, batch: EmbeddedBatch, views: Sequence[int], mask: Tensor | None, **changed: Tensor
    ) -> Tensor:
        """Return the loss of anchors and one of their positives. A subclass can override it to change similarities.

        Args:
            batch: this device's rows.
            views: the positions of the anchor, the positive, and the hard negatives, in this order. Other positives
                are before the hard negatives, and `mask` removes those of the own row. With `symmetric`, there are
                further calls with the positive and the anchor.
            mask: the `negative_mask` of `contrastive_loss`, or None.
            changed: tensors that `contrastive_loss` gets in place of those of the batch, or in addition, such as
                `positive_similarities` [batch].

        Returns:
            The mean over this device's rows, a scalar, without `batch.split.weight`.
        """
        others = select_views(batch.gathered, views[1:])
        tensors: dict[str, Any] = {
            "anchors": batch.embeddings[:, views[0]],
            "positives": others[:, 0],
            "hard_negatives": others[:, 1:],
            "queue": batch.queue,
        }
        return contrastive_loss(
            **(tensors | changed),
            temperature=self.temperature,
            hard_negative_weight=self.hard_negative_weight,
            similarity=self.similarity,
            label_offset=batch.split.label_offset,
            negative_mask=mask,
            decoupled=self.decoupled,
            hardness=self.hardness,
        )


def _own_positives(batch: EmbeddedBatch, num_views: int, num_others: int) -> Tensor:
    """Return a `negative_mask` of each local row's other positives, the first `num_others` views beside the anchor."""
    total = len(batch.gathered)
    mask = torch.zeros(len(batch.embeddings), total, num_views - 1, dtype=torch.bool, device=batch.embeddings.device)
    rows = torch.arange(len(mask), device=mask.device)
    mask[rows, batch.split.label_offset + rows, :num_others] = True
    return F.pad(mask.flatten(1), (total, 0))  # after the columns of one positive of each row


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

    def attach(self, encoder: SentenceEncoder) -> None:
        """Initialize the classifier's weights, [labels, 3 dim]."""
        self.classifier = nn.Linear(3 * encoder.hidden_size, self.labels, bias=False)

    def check_rows(self, roles: Sequence[Role], labels: LabelKind | None) -> None:
        """Raise UserError unless rows are labeled pairs."""
        check_pairs(roles, labels, "classes", "sbert")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's labeled pairs."""
        self.check_rows(batch.roles, batch.label_kind)
        assert batch.labels is not None
        invalid = batch.labels[(batch.labels < 0) | (batch.labels >= self.labels)]
        if len(invalid):
            raise UserError(
                f"objective.labels={self.labels}: a row has label {int(invalid[0])}, and labels count from 0: "
                "set objective.labels to the number of classes, or choose another data.label_column"
            )
        first, second = batch.embeddings.unbind(dim=1)
        return batch.split.weight * siamese_softmax_loss(first, second, batch.labels, self.classifier.weight)


@torch.no_grad()
def mean_similarities(batch: EmbeddedBatch) -> tuple[Tensor, Tensor]:
    """Return the mean cosine of anchors with their positives, and with this device's negatives.

    They are two scalars: nan if there are no positives, or no negatives.
    """
    (anchor,), positives = batch.views(Role.ANCHOR), batch.views(Role.POSITIVE)
    anchors = unit_vectors(batch.embeddings[:, anchor])
    if len(compared := [*positives, *batch.views(Role.NEGATIVE)]) == 0:
        return anchors.sum() * torch.nan, anchors.sum() * torch.nan
    others = unit_vectors(select_views(batch.embeddings, compared))
    own = (anchors[:, None] * others[:, : len(positives)]).sum(dim=-1)
    total = (anchors.sum(dim=0) * others.flatten(0, 1).sum(dim=0)).sum()  # @ would be autocast to half precision
    negatives = len(anchors) * others.shape[0] * others.shape[1] - own.numel()
    return own.mean(), (total - own.sum()) / negatives if negatives else total * torch.nan
