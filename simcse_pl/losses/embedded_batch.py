"""A training batch as the losses see it: its embeddings, the roles of its views, and the rows of other devices."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role, RowKind, default_roles
from simcse_pl.models.templates import SENTENCE_MASK
from simcse_pl.utils.distributed import BatchSplit, all_gather_with_grad, split_batch
from simcse_pl.utils.types import Batch


@dataclass(eq=False)
class EmbeddedBatch:
    """This device's rows of a batch, which are embedded when a loss first reads `embeddings` or `pooled`.

    Args:
        encoder: the trained encoder.
        inputs: the tokenizer's tensors, each [batch, views, tokens]. `sentence_mask` is there if the views have
            different templates, or if the pooling reads it (see templates.py).
        roles: the role of each view; the first is the anchor.
        labels: [batch], int64 classes or float32 scores; None if the data has none.
        dataset: the name of the data set, if there are several.
        queue: [q, dim], embeddings of past batches as further negatives, or None.
        positive_encoder: the encoder of all views but the first, if it is another one.
        chunk_size: the number of rows that are encoded at once (see gradient_cache.py); None for all.
        shared_dropout: whether all views of a row have the same dropout masks.
        progress: the share of the training steps that are done, in [0, 1], for weights that change during training.

    Attributes:
        curves: scalars to log, by name; losses add to them with `log`.
    """

    encoder: SentenceEncoder | None
    inputs: Batch
    roles: tuple[Role, ...] = default_roles(2)
    labels: Tensor | None = None
    dataset: str | None = None
    queue: Tensor | None = None
    positive_encoder: SentenceEncoder | None = None
    chunk_size: int | None = None
    shared_dropout: bool = False
    progress: float = 1.0
    curves: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        *views: Tensor,
        labels: Tensor | None = None,
        roles: Sequence[Role] | None = None,
        queue: Tensor | None = None,
    ) -> "EmbeddedBatch":
        """Return a batch of given embeddings, each [n, dim]: anchors, positives, hard negatives, or those of roles."""
        embeddings = torch.stack(views, dim=1)
        batch = cls(None, {}, tuple(roles or default_roles(len(views))), labels, queue=queue)
        return batch.replaced(embeddings=embeddings, pooled=embeddings)

    def replaced(self, **attributes: Any) -> "EmbeddedBatch":
        """Return a copy with other attributes, such as `embeddings` or `queue`."""
        batch = copy.copy(self)
        if "embeddings" in attributes:
            vars(batch).pop("gathered", None)
        vars(batch).update(attributes)
        return batch

    @property
    def kind(self) -> RowKind:
        """The roles of the views, what the labels are, and their range, which waits for a GPU."""
        if self.labels is None:
            return RowKind(self.roles)
        label_range = float(self.labels.min()), float(self.labels.max())
        return RowKind(self.roles, "scores" if self.labels.is_floating_point() else "classes", label_range)

    @cached_property
    def pooled(self) -> Tensor:
        """The vectors before the projection head, [batch, views, hidden]; the same tensor if no head applies."""
        assert self.encoder is not None
        if self.positive_encoder is None:
            return self.encoder.pool_views(self.inputs, self.chunk_size, self.shared_dropout)
        anchors = self.encoder.pool_views({name: x[:, :1] for name, x in self.inputs.items()}, self.chunk_size)
        others = {name: x[:, 1:] for name, x in self.inputs.items()}
        return torch.cat([anchors, self.positive_encoder.pool_views(others, self.chunk_size)], dim=1)

    @cached_property
    def embeddings(self) -> Tensor:
        """The embeddings after the projection head, [batch, views, dim]."""
        assert self.encoder is not None
        if self.positive_encoder is None:
            return self.encoder.project(self.pooled)
        anchors = self.encoder.project(self.pooled[:, :1])
        return torch.cat([anchors, self.positive_encoder.project(self.pooled[:, 1:])], dim=1)

    @property
    def embedded(self) -> bool:
        """Whether a loss has read the embeddings, before or after the projection head."""
        return "pooled" in vars(self)

    def views(self, *roles: Role) -> list[int]:
        """Return the positions of the views that have one of these roles, in the order of the roles."""
        return [view for role in roles for view, other in enumerate(self.roles) if other == role]

    @cached_property
    def split(self) -> BatchSplit:
        """The number of rows that each device holds."""
        rows = next(iter(self.inputs.values())) if self.inputs else self.embeddings
        return split_batch(len(rows), rows.device)

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all devices [m, ...] for this device's rows [batch, ...], with gradients.

        All dimensions but the first must be equal on all devices. Those of `inputs` are not: each device pads to its
        own longest sentence.

        The gradient of the mean loss of this device's rows, times `split.weight`, is that of the whole batch on one
        device after DDP averages the gradients.
        """
        return all_gather_with_grad(rows, self.split)

    @cached_property
    def gathered(self) -> Tensor:
        """The embeddings of the rows of all devices, [m, views, dim]; this device's begin at `split.label_offset`."""
        return all_gather_with_grad(self.embeddings, self.split)

    def truncated(self, dim: int) -> "EmbeddedBatch":
        """Return this batch with the first dimensions of the embeddings and of the queue; `pooled` is unchanged."""
        queue = None if self.queue is None else self.queue[:, :dim]
        return self.replaced(embeddings=self.embeddings[..., :dim], gathered=self.gathered[..., :dim], queue=queue)

    @cached_property
    def sentence_hashes(self) -> Tensor:
        """A hash of each sentence, [batch, views] int64: equal for equal sentences."""
        return hash_token_ids(self.inputs)

    def log(self, name: str, value: Tensor) -> None:
        """Give a scalar of this device's rows to the callback BatchCurves, which logs its mean as train/NAME."""
        self.curves[name] = value.detach()


def select_views(tensor: Tensor, views: Sequence[int]) -> Tensor:
    """Return some views of a tensor [batch, views, ...]; indexing by a list would wait for a GPU."""
    return torch.stack([tensor[:, view] for view in views], dim=1)


def hash_token_ids(batch: Batch) -> Tensor:
    """Return a 64-bit hash of each sentence's token ids, [batch, views], which does not depend on padding.

    It does not depend on the sentence's template if the batch has a `sentence_mask` (see templates.py).
    Different sentences have the same hash with negligible probability.
    """
    ids = batch["input_ids"]
    factors = _factors(ids.shape[-1], ids.device)
    if (mask := batch.get(SENTENCE_MASK)) is None:
        mask = batch["attention_mask"]
    else:
        factors = factors[(mask.cumsum(dim=-1) - 1).clamp(min=0)]  # of the position in the sentence
    return ((ids + 1) * mask * factors).sum(dim=-1)


@cache
def _factors(tokens: int, device: torch.device) -> Tensor:
    """Return one random factor per position; more tokens append factors and change none."""
    numbers = np.random.SeedSequence(0).generate_state(tokens, np.uint64).view(np.int64)
    return torch.from_numpy(numbers).to(device)
