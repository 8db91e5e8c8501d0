"""A training step as the losses see it: the embeddings of a batch, the roles of its views, and the other devices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from simcse_pl.losses.duplicates import hash_token_ids
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.distributed import BatchSplit, all_gather_with_grad, split_batch


@dataclass(frozen=True)
class EmbeddedBatch:
    """This device's rows of a batch, embedded.

    `dataclasses.replace` makes a changed copy, for an objective that wraps another one.

    Args:
        embeddings: [batch, views, dim], after the projection head.
        roles: the role of each view.
        inputs: the tokenizer's tensors, each [batch, views, tokens]. `sentence_mask` is there if the views have
            different templates, or if the pooling reads it (see templates.py).
        pooled: [batch, views, hidden], before the projection head; the same tensor if no head applies. None if the
            embeddings do not come from an encoder.
        labels: [batch], int64 classes or float32 scores; None if the data has none.
        queue: [q, dim], embeddings of past batches as further negatives, or None.
    """

    embeddings: Tensor
    roles: tuple[Role, ...]
    inputs: Batch
    pooled: Tensor | None = None
    labels: Tensor | None = None
    queue: Tensor | None = None

    def views(self, *roles: Role) -> list[int]:
        """Return the positions of the views that have one of these roles, in the order of the roles."""
        return [view for role in roles for view, own in enumerate(self.roles) if own == role]

    @property
    def label_kind(self) -> LabelKind | None:
        """What the labels are; None if there are none."""
        if self.labels is None:
            return None
        return "scores" if self.labels.is_floating_point() else "classes"

    @cached_property
    def split(self) -> BatchSplit:
        """The number of rows that each device holds."""
        return split_batch(len(self.embeddings), self.embeddings.device)

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all devices [m, ...] for this device's rows [batch, ...], with gradients.

        The gradient of the mean loss of this device's rows, times `split.weight`, is that of the whole batch on one
        device after DDP averages the gradients.
        """
        return all_gather_with_grad(rows, self.split)

    @cached_property
    def gathered(self) -> Tensor:
        """The embeddings of the rows of all devices, [m, views, dim]; this device's begin at `split.label_offset`."""
        return self.gather(self.embeddings)

    def truncated(self, dim: int) -> "EmbeddedBatch":
        """Return this batch with the first dimensions of the embeddings and of the queue; `pooled` is unchanged."""
        queue = None if self.queue is None else self.queue[:, :dim]
        batch = replace(self, embeddings=self.embeddings[..., :dim], queue=queue)
        shared = {"split": self.split, "gathered": self.gathered[..., :dim]}  # not gathered once more
        vars(batch).update(shared)
        return batch

    @cached_property
    def sentence_hashes(self) -> Tensor:
        """A hash of each sentence, [batch, views] int64: equal for equal sentences."""
        return hash_token_ids(self.inputs)


def select_views(tensor: Tensor, views: Sequence[int]) -> Tensor:
    """Return some views of a tensor [batch, views, ...]; indexing by a list would wait for a GPU."""
    return torch.stack([tensor[:, view] for view in views], dim=1)
