"""SimCSE's contrastive loss. Equation numbers are those of the paper."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs, select_views
from simcse_pl.models.tokenization import hash_token_ids
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import Similarity, similarity_matrix
from simcse_pl.utils.types import Role

_LARGEST_LOG_SCALE = math.log(100)  # CLIP's


def contrastive_loss(
    anchors: Tensor,
    positives: Tensor,
    hard_negatives: Tensor | None = None,
    queue: Tensor | None = None,
    *,
    temperature: float | Tensor = 0.05,
    label_offset: int = 0,
    reduction: Literal["mean", "none"] = "mean",
) -> Tensor:
    """Return the contrastive loss of SimCSE, which compares each anchor with the whole batch.

    In plain terms: each anchor should be more similar to its own positive than to the positives and
    hard negatives of all other rows. The loss is the cross-entropy of finding its own positive.

    These are equations 1 and 4 without hard negatives, and 5 with them. For the anchor h_i, its positive h_i+ and
    the hard negatives h_j- of the rows j = 1..N, it is the mean of

        -log( exp(cos(h_i, h_i+) / t) / sum_j ( exp(cos(h_i, h_j+) / t) + exp(cos(h_i, h_j-) / t) ) )

    With several hard negatives per row, the second term is summed over them. A queue of embeddings
    h_m from other batches adds sum_m exp(cos(h_i, h_m) / t) to the sum over j (ESimCSE, Wu et al.
    2022).

    Args:
        anchors: [n, dim], the rows to compute the loss of.
        positives: [m, dim], the positives of all rows; m > n if other rows are on other devices.
        hard_negatives: [m, k, dim], or None.
        queue: [q, dim], embeddings of past batches, or None.
        temperature: t, above 0.
        label_offset: the index in `positives` of the first anchor's own positive.
        reduction: `mean`, or `none` for the loss of each anchor.

    Returns:
        The mean over the anchors, a scalar; or [n].
    """
    if not (isinstance(temperature, Tensor) or temperature > 0):
        raise UserError(f"temperature={temperature}: it should be above 0")
    keys = torch.cat([positives, *(x.flatten(0, -2) for x in (hard_negatives, queue) if x is not None)])
    targets = label_offset + torch.arange(len(anchors), device=anchors.device)
    return F.cross_entropy(similarity_matrix(anchors, keys) / temperature, targets, reduction=reduction)


def _weighted_by_hardness(logits: Tensor, targets: Tensor, hardness: float) -> Tensor:
    """Add log(x^hardness / mean x^hardness) to the logits log(x) of the negatives of each row.

    Negatives are the columns above -inf other than the row's target.
    """
    negatives = logits.scatter(1, targets[:, None], -math.inf)
    kept = ~negatives.isneginf()
    count = kept.sum(dim=1, keepdim=True)
    powers = hardness * negatives
    log_sums = powers.masked_fill(count == 0, 0).logsumexp(dim=1, keepdim=True)  # finite, so the gradient is finite
    return torch.where(kept, logits + powers - log_sums + count.clamp(min=1).to(logits).log(), logits)


def duplicate_negatives(hashes: Tensor, others: Tensor, label_offset: int = 0, positives: int = 1) -> Tensor:
    """Return which negatives of each row repeat one of the row's own sentences: its anchor and positives.

    All positives of another row are duplicates if that row's anchor or one of its positives equals one of
    this row's own sentences. A hard negative is a duplicate if it equals one of them. A row's own
    positives never are.

    Args:
        hashes: [n, views], from `hash_token_ids`: anchor, positives, then any hard negatives.
        others: [m, views], the hashes of all rows of the batch; m > n if some are on other devices.
        label_offset: the index in `others` of the first row of `hashes`.
        positives: the number of positives of a row.

    Returns:
        [n, m, views] bool: whether a view of one of the m rows is a duplicate for a row; the anchor's column equals
        that of the positives.
    """
    num_own = 1 + positives
    same = (hashes[:, None, :num_own, None] == others[None, :, None, :]).any(dim=2)  # [n, m, views]
    repeated = same[:, :, :num_own].any(dim=2)
    rows = torch.arange(len(hashes), device=hashes.device)
    repeated[rows, label_offset + rows] = False
    return torch.cat([repeated[:, :, None].expand(-1, -1, num_own), same[:, :, num_own:]], dim=2)


class ContrastiveLoss(Loss):
    """SimCSE's contrastive loss over the batch of all devices; see `contrastive_loss`.

    Args:
        temperature: t, above 0.
        hard_negative_weight: alpha of equation 8, the factor of exp(sim(h_i, h_i-) / t), a row's own hard negatives.
        similarity: `cosine` or `dot`.
        hardness: beta; each negative's term x of a sum is multiplied by x^beta, divided by the mean of x^beta over the
            negatives of this sum, with `joint` of the same direction (Robinson et al. 2021, without the correction for
            false negatives). As in their released code, the gradient includes these weights.
        mask_duplicates: leave out negatives of the batch that repeat one of the row's own sentences
            (see `duplicate_negatives`). It does not apply to a queue, which stores embeddings only.
        symmetric: average with the loss of each positive against the anchors of all rows, and the queue; `joint` adds
            the similarities of both to one sum. With `same_role`, that is the loss of GTE (Li et al. 2023), for rows
            of one positive: -log(exp(s(h_i, h_i+) / t) / (sum_j (exp(s(h_i, h_j+) / t) + exp(s(h_j, h_i+) / t))
            + sum_{j != i} (exp(s(h_i, h_j) / t) + exp(s(h_i+, h_j+) / t)))).
        trainable_temperature: learn the temperature, beginning with `temperature`. As in CLIP (Radford et al. 2021),
            the parameter is log(1 / temperature), at most log(100). The curve train/temperature shows it.
        same_role: also compare anchors with the anchors of other rows, and, if symmetric, positives with the positives
            of other rows. For pairs, both options together are NT-Xent (SimCLR, Chen et al. 2020): each of the 2N
            sentences is compared with the 2N - 1 others.
        false_negative_margin: leave out negatives that are more similar to the sentence they are compared with than
            its positive is, by more than this margin (Qwen3 Embedding, Zhang et al. 2025, with 0.1); None for none.
        mask_positives: compare each positive without the row's other positives; if false, they stay in its sum, as in
            SupCon (Khosla et al. 2020, equation 2), with the weight of hard negatives.
    """

    contrasts = True
    truncatable = True
    needs = Needs()

    def __init__(
        self,
        temperature: PositiveFloat = 0.05,
        hard_negative_weight: NonNegativeFloat = 1.0,
        similarity: Similarity = "cosine",
        mask_duplicates: bool = False,
        hardness: NonNegativeFloat = 0.0,
        symmetric: bool | Literal["joint"] = False,
        same_role: bool = False,
        trainable_temperature: bool = False,
        false_negative_margin: NonNegativeFloat | None = None,
        mask_positives: bool = True,
        weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(weight)
        self.hard_negative_weight, self.similarity = hard_negative_weight, similarity
        self.log_scale: nn.Parameter | None = None
        if trainable_temperature:
            self.log_scale = nn.Parameter(torch.tensor([-math.log(temperature)]))  # FSDP shards no scalars
        self._temperature = temperature
        self.mask_duplicates, self.hardness = mask_duplicates, hardness
        self.symmetric, self.same_role = symmetric, same_role
        self.false_negative_margin, self.mask_positives = false_negative_margin, mask_positives

    @property
    def temperature(self) -> float | Tensor:
        """The temperature; a scalar tensor if it is trained."""
        return self._temperature if self.log_scale is None else (-self.log_scale[0]).exp()

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's anchors against the rows of all devices.

        With several positives per row, the loss is the mean over them. The positives of the other rows are negatives.
        Copies are neither positives nor negatives.
        """
        if self.log_scale is not None:
            with torch.no_grad():
                self.log_scale.clamp_(max=_LARGEST_LOG_SCALE)
            batch.log("temperature", (-self.log_scale[0]).exp())
        comparisons = self._comparisons(batch)
        false = self.false_negatives(batch, comparisons)
        every = [self._logits(batch, views, mask) for views, mask in zip(comparisons, false, strict=True)]
        if self.symmetric == "joint":
            half = len(every) // 2
            every = [torch.cat(directions, dim=1) for directions in zip(every[:half], every[half:], strict=True)]
        if batch.copies is None:
            return torch.stack([F.cross_entropy(logits, batch.targets) for logits in every]).mean()
        losses = torch.stack([F.cross_entropy(logits, batch.targets, reduction="none") for logits in every])
        is_sentence = [~batch.copies[:, positive] for positive in batch.views(Role.POSITIVE)]
        counted = torch.stack(is_sentence * (len(every) // len(is_sentence)))
        return ((losses * counted).sum(dim=0) / counted.sum(dim=0)).mean()

    def _comparisons(self, batch: EmbeddedBatch) -> list[list[int]]:
        """Return the `views` of each call of `similarities`: of each positive, then those of the other direction."""
        positives, negatives = batch.views(Role.POSITIVE), batch.views(Role.NEGATIVE)
        anchors_too, positives_too = ([0], positives) if self.same_role else ([], [])
        comparisons = []
        for positive in positives:
            others = [view for view in positives if view != positive]
            comparisons.append([0, positive, *others, *negatives, *anchors_too])
        if self.symmetric:
            comparisons += [[positive, 0, *positives_too] for positive in positives]
        return comparisons

    def _logits(self, batch: EmbeddedBatch, views: Sequence[int], false: Mapping[int, Tensor] | None) -> Tensor:
        """Return the logits of a comparison, weighted, and -inf for what is left out."""
        similarities = self.similarities(batch, views)
        logits = self._weigh_own_hard_negatives(similarities / self.temperature, batch, len(views) - 2)
        if self.false_negative_margin is not None:
            limit = similarities.gather(1, batch.targets[:, None]) + self.false_negative_margin
            logits = logits.masked_fill(similarities > limit, -math.inf)
        own_views = {view for view in views[2:] if batch.roles[view] != Role.NEGATIVE}
        if not self.mask_positives:
            own_views &= {views[0]}  # the sentence itself
        mask = _negative_mask(batch, views, false, own_views)
        if mask is not None:
            logits = logits.masked_fill(F.pad(mask, (0, logits.shape[1] - mask.shape[1])), -math.inf)
        return _weighted_by_hardness(logits, batch.targets, self.hardness) if self.hardness else logits

    def _weigh_own_hard_negatives(self, logits: Tensor, batch: EmbeddedBatch, k: int) -> Tensor:
        """Multiply the terms of each row's own k hard negatives by `hard_negative_weight`."""
        if not k or self.hard_negative_weight == 1.0:
            return logits
        log_alpha = math.log(self.hard_negative_weight) if self.hard_negative_weight > 0 else -math.inf
        own = batch.is_itself().repeat(1, k)
        m = len(batch.gathered)
        return torch.where(F.pad(own, (m, logits.shape[1] - m - m * k)), logits + log_alpha, logits)

    def similarities(self, batch: EmbeddedBatch, views: Sequence[int]) -> Tensor:
        """Return the similarities of this device's anchors with all keys. A subclass can change them, or add columns.

        Args:
            batch: this device's rows.
            views: the positions of the anchor, the positive, and the hard negatives, in this order. Other positives
                are before the hard negatives; those of the own row are left out. With `symmetric`, there are further
                calls with the positive and the anchor. With `same_role`, the views of the first one's role are at the
                end.

        Returns:
            [n, m + m k + q]: the columns of the m positives, those of each further view, and the queue. The column of a
            row's own positive is in `batch.targets`.
        """
        keys = [batch.gathered[:, view] for view in views[1:]]
        if batch.queue is not None:
            keys.append(batch.queue)
        return similarity_matrix(batch.embeddings[:, views[0]], torch.cat(keys), self.similarity)

    def false_negatives(
        self, batch: EmbeddedBatch, comparisons: Sequence[Sequence[int]]
    ) -> Sequence[Mapping[int, Tensor] | None]:
        """Return what to leave out of the negatives of each comparison. A subclass can override it.

        Args:
            batch: this device's rows.
            comparisons: the `views` of each call of `similarities`.

        Returns:
            For each comparison, a mask [n, m] for each of its views but the first, True for a sentence of one of the m
            rows that is left out; or None to leave out nothing. A row's own positive always stays.
        """
        if not self.mask_duplicates:
            return [None] * len(comparisons)
        if not batch.inputs:
            raise UserError("mask_duplicates=true: plain tensors have no tokens to compare: give a batch")
        positives = batch.views(Role.POSITIVE)
        hashed = [0, *positives, *batch.views(Role.NEGATIVE)]
        hashes = select_views(hash_token_ids(batch.inputs), hashed)
        repeated = duplicate_negatives(hashes, batch.gather(hashes), batch.split.label_offset, len(positives))
        return [dict(zip(hashed, repeated.unbind(dim=2), strict=True))] * len(comparisons)


def _negative_mask(
    batch: EmbeddedBatch, views: Sequence[int], false: Mapping[int, Tensor] | None, own_views: set[int]
) -> Tensor | None:
    """Return which columns of a comparison to leave out, or None for none; those of a queue are not among them.

    They are `false` negatives, copies, and `own_views`, the row's own views.
    """
    positive, *others = keys = views[1:]
    copies = batch.gathered_copies
    if false is None and not own_views and copies is None:
        return None
    itself = batch.is_itself()
    false = false or dict.fromkeys(keys, torch.zeros_like(itself))
    if copies is not None:
        false = {view: mask | copies[:, view] for view, mask in false.items()}
    masks = [false[view] | itself if view in own_views else false[view] for view in others]
    return torch.cat([false[positive] & ~itself, *masks], dim=1)
