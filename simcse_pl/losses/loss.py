"""A training batch as losses see it, and the base class of SimCSE's contrastive loss and of all other losses."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeFloat
from torch import Tensor, nn

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.heads import is_kept
from simcse_pl.utils.distributed import BatchSplit, all_gather_with_grad, split_batch, split_of
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import at_least_float32
from simcse_pl.utils.types import Batch, Checked, LabelKind, Role, RowKind, candidates, default_roles


@dataclass(eq=False)
class EmbeddedBatch:
    """This device's rows of a batch. The first loss that needs their embeddings calls `embed`; see Loss.embeds.

    Args:
        encoder: the trained encoder. A batch of given embeddings has none.
        inputs: the tokenizer's tensors, each [batch, views, tokens]. `sentence_mask` is there if the views have
            different templates, or if the pooling reads it (see templates.py).
        roles: the role of each view; the first is the anchor.
        labels: [batch], int64 classes or float32 scores, or [batch, scores]; None if the data has none.
        dataset: the name of the data set, if there are several.
        rows: [batch], the position of each row in the source; None if it is not known.
        queue: [q, dim], embeddings of past batches as further negatives, or None.
        positive_encoder: the encoder of all views but the first, if it is another one.
        chunk_size: the number of rows that are encoded at once, or their mean (see gradient_cache.py); None for all.
        shared_dropout: whether all views of a row have the same dropout masks.
        progress: the share of the training steps that are done, in [0, 1], for weights that change during training. It
            is a float32 scalar in a captured step.
        drawn: what losses drew on the host before the step (see Loss.draw); a loss that is not in it draws in the step.
        counts: the number of rows that each device holds; None to ask the other devices.
        copies: [batch, views] bool, the sentences that repeat an earlier one because the row has too few; or None.

    Attributes:
        curves: this device's scalars, whose means over devices are logged, by the names of their curves. Losses add to
            them with `log`, and callbacks in `on_train_batch_end`, the same ones on all devices.
        embedded: whether the rows have been embedded.
        pooled: the vectors before the projection head, [batch, views, hidden]; the same tensor if no head applies.
            They and `embeddings` exist if the rows have been embedded.
        embeddings: the embeddings after the projection head, [batch, views, dim], in float32 if they were in half
            precision.
    """

    encoder: SentenceEncoder
    inputs: Batch
    roles: tuple[Role, ...] = default_roles(2)
    labels: Tensor | None = None
    dataset: str | None = None
    rows: NDArray[np.int64] | None = None
    queue: Tensor | None = None
    positive_encoder: SentenceEncoder | None = None
    chunk_size: float | None = None
    shared_dropout: bool = False
    progress: float | Tensor = 1.0
    drawn: Mapping["Loss", int] = field(default_factory=dict)
    counts: tuple[int, ...] | None = None
    copies: Tensor | None = None
    curves: dict[str, Tensor | float] = field(default_factory=dict)
    embedded: bool = False
    pooled: Tensor = field(init=False, repr=False)
    embeddings: Tensor = field(init=False, repr=False)

    @classmethod
    def of(
        cls,
        anchors: Tensor,
        positives: Tensor,
        *others: Tensor,
        hard_negatives: Tensor | None = None,
        labels: Tensor | None = None,
        roles: Sequence[Role] | None = None,
        queue: Tensor | None = None,
    ) -> "EmbeddedBatch":
        """Return a batch of embeddings [n, dim], `hard_negatives` also [n, k, dim], which have the `roles` in order."""
        embeddings = torch.stack([anchors, positives, *others], dim=1)
        if hard_negatives is not None:
            embeddings = torch.cat([embeddings, hard_negatives[:, None].flatten(1, -2)], dim=1)
        batch = cls(None, {}, tuple(roles or default_roles(embeddings.shape[1])), labels, queue=queue)  # type: ignore[arg-type]
        return batch.replaced(embeddings=embeddings, pooled=embeddings)

    def replaced(self, **attributes: Any) -> "EmbeddedBatch":
        """Return a copy with other attributes, such as `queue`; with `embeddings` or `pooled`, it is embedded."""
        batch = copy.copy(self)
        batch.embedded = self.embedded or not attributes.keys().isdisjoint(("embeddings", "pooled"))
        if "embeddings" in attributes:
            vars(batch).pop("gathered", None)
            attributes["embeddings"] = at_least_float32(attributes["embeddings"])
        vars(batch).update(attributes)
        return batch

    def embed(self) -> None:
        """Embed the rows with the encoder, in chunks if they are given."""
        encoder, other = self.encoder, self.positive_encoder
        self.embedded = True
        if other is None:
            self.pooled = encoder.pool_views(self.inputs, self.chunk_size, self.shared_dropout)
            self.embeddings = at_least_float32(encoder.project(self.pooled, self.split))
            return
        anchors = encoder.pool_views({name: x[:, :1] for name, x in self.inputs.items()}, self.chunk_size)
        others = other.pool_views({name: x[:, 1:] for name, x in self.inputs.items()}, self.chunk_size)
        self.pooled = torch.cat([anchors, others], dim=1)
        projected = [encoder.project(anchors, self.split), other.project(others, self.split)]
        self.embeddings = at_least_float32(torch.cat(projected, dim=1))

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self._any_tensor.device

    @property
    def _any_tensor(self) -> Tensor:
        return next(iter(self.inputs.values())) if self.inputs else self.embeddings

    def views(self, *roles: Role) -> list[int]:
        """Return the positions of the views that have one of these roles, in the order of the roles."""
        return [view for role in roles for view, other in enumerate(self.roles) if other == role]

    @cached_property
    def split(self) -> BatchSplit:
        """The number of rows that each device holds."""
        if self.counts:
            return split_of(self.counts)
        return split_batch(len(self._any_tensor), self.device)

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all devices [m, ...] for this device's rows [batch, ...], with gradients.

        All dimensions but the first must be equal on all devices. Those of `inputs` are not: each device pads to its
        own longest sentence. One collective exchanges rows without a gradient, such as labels, and the embeddings, if
        those are not in `gathered` yet.

        After DDP averages the gradients, that of a Loss of this device's rows is that of the whole batch on one device.
        """
        if rows.requires_grad or not self.embedded or "gathered" in vars(self):
            return all_gather_with_grad(rows, split=self.split)[0]
        self.gathered, gathered = all_gather_with_grad(self.embeddings, rows, split=self.split)
        return gathered

    @cached_property
    def gathered(self) -> Tensor:
        """The embeddings of the rows of all devices, [m, views, dim]; this device's begin at `split.label_offset`."""
        return all_gather_with_grad(self.embeddings, split=self.split)[0]

    @cached_property
    def gathered_copies(self) -> Tensor | None:
        """The `copies` of all devices, [m, views], or None."""
        return None if self.copies is None else self.gather(self.copies)

    @cached_property
    def targets(self) -> Tensor:
        """The index of each of this device's rows among the rows of all devices, [batch] int64."""
        return self.split.label_offset + torch.arange(len(self._any_tensor), device=self.device)

    def is_itself(self) -> Tensor:
        """Return a mask [batch, m]: true where a column is the row itself."""
        return self.targets[:, None] == torch.arange(sum(self.split.rows), device=self.embeddings.device)

    def log(self, name: str, value: Tensor) -> None:
        """Let the mean of a scalar over devices be logged as train/NAME, if this step is logged."""
        if value.dim():
            raise UserError(f"batch.log({name!r}): it has {[*value.shape]} values: log a scalar")
        self.curves[f"train/{name}"] = value.detach()


def select_views(tensor: Tensor, views: Sequence[int]) -> Tensor:
    """Return some views of a tensor [batch, views, ...]; indexing by a list would wait for a GPU."""
    return torch.stack([tensor[:, view] for view in views], dim=1)


@dataclass(frozen=True)
class Needs:
    """What a loss needs of a row: one anchor, positives, and perhaps hard negatives and a label.

    Args:
        positives: how many positives there must be; None for one or more.
        negatives: whether there must be hard negatives; None for any number.
        labels: the kind of the label. None refuses labels, because the loss would ignore them; `any` allows and
            ignores them. A row with a label is a pair, or a triplet if there must be hard negatives.
    """

    positives: int | None = None
    negatives: bool | None = None
    labels: LabelKind | Literal["any"] | None = None

    def check(self, rows: RowKind) -> None:
        """Raise UserError unless rows have what is needed."""
        if self.labels in ("classes", "scores"):
            needed, label = 3 if self.negatives else 2, "label" if self.labels == "classes" else "score"
            if rows.labels != self.labels or len(rows.roles) != needed:
                has = f"{needed} sentences and a {label} in each row"
                raise UserError(f"this loss takes {has}: set data.columns and data.{label}_column")
            if not self.negatives:
                return
        count = {role: rows.roles.count(role) for role in Role}
        wanted = ["one anchor", "a positive" if self.positives is None else f"{self.positives} positive"]
        valid = rows.roles[0] == Role.ANCHOR and count[Role.ANCHOR] == 1
        valid = valid and count[Role.POSITIVE] == (self.positives or max(1, count[Role.POSITIVE]))
        if self.negatives is not None:
            wanted.append("hard negatives" if self.negatives else "no negative")
            valid = valid and (count[Role.NEGATIVE] > 0) == self.negatives
        if not valid:
            raise UserError(f"a row needs {', '.join(wanted)}, not {', '.join(rows.roles)}: change data.roles or views")
        if rows.labels and self.labels is None:
            column = "label_column" if rows.labels == "classes" else "score_column"
            raise UserError(f"this loss takes no labels: set data.{column}=null, or another objective")


class Loss(Checked, nn.Module, ABC):
    """A loss of a training batch. A subclass writes `forward`.

    `loss(batch)` is the call of training. A loss of embeddings alone also takes plain tensors [n, dim], by position or
    by name: `loss(anchors, positives, *hard_negatives, labels=None, queue=None)` (see EmbeddedBatch.of).

    A subclass may have networks of its own. They are trained, and saved in training checkpoints, but not with the
    encoder. A FrozenEncoder (see TaughtLoss) is neither trained nor saved. A loss keeps no state of a step.

    Args:
        weight: the factor of this loss in a sum of losses; all losses have it.

    Attributes:
        embeds: whether the loss reads the embeddings of the batch, so that a call embeds it unless an earlier one has.
        mean_of_rows: whether `forward` returns the mean over this device's rows, which a call weighs by their number.
        contrasts: whether the other rows of a batch are negatives.
        runs_networks: whether `forward` runs networks, in the precision of training. Otherwise it computes in float32.
        truncatable: whether the loss depends on the embeddings alone, so that it is defined for their first
            dimensions too (see MatryoshkaLoss).
        needs: what rows must have; None for nothing.
        capturable: whether a step with this loss can be a CUDA graph: it must not read tensors on the host, and use no
            host value other than `batch.progress` and `draw`. A class of your own must say so itself.

    Examples:
        >>> ContrastiveLoss(temperature=0.05)(torch.randn(8, 16), torch.randn(8, 16)).shape
        torch.Size([])
    """

    embeds: ClassVar[bool] = True
    mean_of_rows: ClassVar[bool] = True
    contrasts: ClassVar[bool] = False
    runs_networks: ClassVar[bool] = False
    truncatable: ClassVar[bool] = False
    capturable: ClassVar[bool] = True
    needs: Needs | None = None

    def __init__(self, weight: NonNegativeFloat = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare for an encoder, once before training. It may add parameters, or raise UserError."""

    def check_rows(self, rows: RowKind) -> None:
        """Raise UserError unless the loss is defined for rows with these roles and labels."""
        if self.needs:
            self.needs.check(rows)

    def draw(self, encoder: SentenceEncoder) -> int | None:
        """Return what the host draws for a step, such as a layer, or None. Each value needs a CUDA graph of its own."""
        return None

    @abstractmethod
    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the mean loss over this device's rows, a scalar, without the factor `self.weight`.

        A call multiplies it by `batch.split.weight`, because devices may have different numbers of rows. A loss of the
        rows of all devices, equal on each, may keep the default. A loss that calls other losses, or divides by a count
        over all devices, sets `mean_of_rows = False`: the mean over devices is then the loss of the whole batch.

        The loss is also called once before training, with two equal rows, to find the parameters that get gradients;
        `batch.progress` is 1 then.

        Args:
            batch: the rows, embedded unless `embeds` is false; `batch.encoder` is the encoder given to `attach`.
        """

    def __call__(self, *given: Any, **tensors: Any) -> Tensor:
        """Return the loss of a batch, which is embedded first, or of plain tensors (see EmbeddedBatch.of)."""
        batch = given[0] if len(given) == 1 and not tensors else None
        if not isinstance(batch, EmbeddedBatch):
            batch = EmbeddedBatch.of(*given, **tensors)
        if self.embeds and not batch.embedded:
            batch.embed()
        self._check_labels(batch)
        # otherwise autocast would multiply in half precision
        with nullcontext() if self.runs_networks else torch.autocast(batch.device.type, enabled=False):
            loss = super().__call__(batch)
        if not isinstance(loss, Tensor):
            raise UserError(f"{type(self).__name__}.forward returned {loss!r}: return a tensor, the mean over rows")
        if loss.dim():
            raise UserError(f"{type(self).__name__}.forward returned {[*loss.shape]} values: return their mean")
        return loss * batch.split.weight if self.mean_of_rows else loss

    def _check_labels(self, batch: EmbeddedBatch) -> None:
        """Raise UserError if labels have another shape than the loss reads: torch would broadcast them."""
        kind = self.needs and self.needs.labels
        if kind in ("classes", "scores", "score_lists"):
            rows = len(batch.embeddings)
            wanted = [rows, len(candidates(batch.roles))] if kind == "score_lists" else [rows]
            if batch.labels is None or [*batch.labels.shape] != wanted:
                found = "None" if batch.labels is None else [*batch.labels.shape]
                raise UserError(f"labels: {type(self).__name__} takes {wanted}, not {found}")

    def held_out_metrics(self, loss: Tensor) -> dict[str, Tensor]:
        """Return the metrics of held-out rows, given their mean loss."""
        return {"loss": loss}

    def save(self, encoder: SentenceEncoder, folder: Path) -> None:
        """Save the trained encoder."""
        encoder.save_pretrained(folder)


def check_one_encoder(batch: EmbeddedBatch) -> None:
    """Raise UserError if a batch has a second encoder, for a loss that embeds by the first alone."""
    if batch.positive_encoder:
        raise UserError("this loss embeds the sentences itself, by one encoder: set encoders=one")


def check_head_is_kept(encoder: SentenceEncoder) -> None:
    """Raise UserError if a head makes the vectors of training, and not those of the saved encoder."""
    if not is_kept(encoder.head):
        raise UserError(
            f"model.head={encoder.head}: the vectors of the saved encoder would not be trained, because this head is "
            "dropped: set model.head=none or mlp"
        )


def check_width_is_kept(encoder: SentenceEncoder) -> None:
    """Raise UserError if the pooled vectors, or the embeddings, cannot take the place of a state of the backbone."""
    width = encoder.backbone.config.hidden_size
    for part, dim in (("pooling", encoder.pooled_dim), ("head", encoder.embedding_dim)):
        if dim != width:
            raise UserError(f"model.{part}={getattr(encoder, part)}: it returns {dim} dimensions, not {width}")
