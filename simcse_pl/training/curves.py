"""Curves that inform about training; they are computed at the steps that are logged, and not at every step."""

from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from simcse_pl.losses.contrastive import duplicate_negatives
from simcse_pl.losses.embedded_batch import EmbeddedBatch, select_views
from simcse_pl.models.roles import Role
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.distributed import mean_over_ranks
from simcse_pl.utils.tensors import unit_vectors


class BatchCurves(Callback):
    """Log the curves of the losses, and how similar and how often repeated the sentences of a batch are.

    train/positive_similarity and train/negative_similarity are mean cosines of anchors. train/duplicates is the share
    of rows that have one of their own sentences among this device's negatives. With several data sets, train/loss/NAME
    is the loss of one of them.
    """

    def __init__(self) -> None:
        self._names: list[str] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Log the means over devices, if this step is logged."""
        if not is_logged(trainer) or not isinstance(pl_module, SimCSEModule) or pl_module.batch is None:
            return
        batch = pl_module.batch
        curves = batch.curves
        if batch.embedded:
            curves |= mean_similarities(batch)
        if pl_module.objective.for_dataset(batch.dataset).contrasts:
            curves |= {"duplicates": share_of_duplicates(batch)}
        if batch.dataset:
            curves |= {f"loss/{batch.dataset}": trainer.callback_metrics["train/loss"].to(pl_module.device)}
        if not curves:
            return
        # A rank with one row has no negatives, so their similarity is nan there.
        means = mean_over_ranks(torch.stack(list(curves.values())), ignore_nan=True).unbind()
        nan = means[0] * torch.nan  # Lightning would log the last value of another data set's curve again
        values = dict.fromkeys(self._names, nan) | dict(zip(curves, means, strict=True))
        self._names = list(values)
        pl_module.log_dict({f"train/{name}": value for name, value in values.items()})


def is_logged(trainer: Trainer) -> bool:
    """Return whether Lightning logs the step that ends."""
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return every > 0 and (trainer.should_stop or trainer.global_step % every == 0)


@torch.no_grad()
def mean_similarities(batch: EmbeddedBatch) -> dict[str, Tensor]:
    """Return the mean cosine of anchors with their positives, and with this device's negatives.

    They are two scalars: nan if there are no positives, or no negatives.
    """
    (anchor,), positives = batch.views(Role.ANCHOR), batch.views(Role.POSITIVE)
    anchors = unit_vectors(batch.embeddings[:, anchor])
    positive = negative = anchors.sum() * torch.nan
    if compared := [*positives, *batch.views(Role.NEGATIVE)]:
        others = unit_vectors(select_views(batch.embeddings, compared))
        cosines = (anchors[:, None] * others[:, : len(positives)]).sum(dim=-1)
        total = (anchors.sum(dim=0) * others.flatten(0, 1).sum(dim=0)).sum()  # @ would be autocast to half precision
        count = len(anchors) * others.shape[0] * others.shape[1] - cosines.numel()
        positive = cosines.mean()
        negative = (total - cosines.sum()) / count if count else negative
    return {"positive_similarity": positive, "negative_similarity": negative}


def share_of_duplicates(batch: EmbeddedBatch) -> Tensor:
    """Return the share of rows that have one of their own sentences among this device's negatives, a scalar.

    A negative in a template of its own is another text.
    """
    assert batch.encoder is not None
    sentences, template_of = batch.views(Role.ANCHOR, Role.POSITIVE), batch.encoder.templates.text_of
    shared = {template_of(view) for view in sentences}
    negatives = [view for view in batch.views(Role.NEGATIVE) if template_of(view) in shared]
    hashes = select_views(batch.sentence_hashes, [*sentences, *negatives])
    return duplicate_negatives(hashes, hashes, positives=len(sentences) - 1).any(dim=1).float().mean()
