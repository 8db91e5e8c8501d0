"""Callbacks: seeding and counting of steps, curves, warnings, and progress."""

import logging
import time
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ProgressBar as LightningProgressBar
from torch import Tensor

from simcse_pl.encoder_module import EncoderModule
from simcse_pl.evaluation.metrics import gram_bound
from simcse_pl.losses.contrastive import duplicate_negatives
from simcse_pl.losses.loss import EmbeddedBatch, select_views
from simcse_pl.models.tokenization import hash_token_ids
from simcse_pl.module import SimCSEModule
from simcse_pl.results import logged
from simcse_pl.step import logs_step
from simcse_pl.utils.distributed import mean_over_ranks, world_size
from simcse_pl.utils.private import set_logged_step
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.terminal import counting_bar
from simcse_pl.utils.types import Role

log = logging.getLogger(__name__)
_MOST_VECTORS = 20_000
_DUPLICATES = (
    "%.2f%% of the rows of logged steps had their own sentence among their negatives, because the data repeats it; %s"
)


class SeedEveryStep(Callback):
    """Seed torch before every batch with the run's seed, the batch's number and the rank.

    A resumed run then draws the same dropout masks and masked tokens as an uninterrupted one. Each rank
    draws its own.
    """

    def __init__(self, seed: Annotated[int, Field(ge=0, lt=2**32)]) -> None:
        self.seed = seed

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        numbers = [self.seed, trainer.fit_loop.total_batch_idx, trainer.global_rank]
        seed = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
        torch.default_generator.manual_seed(seed)
        device = trainer.strategy.root_device
        if device.type != "cpu":  # torch.manual_seed takes 0.7 ms, because it prepares for devices that are not there
            torch.get_device_module(device).manual_seed(seed)


class CountSteps(Callback):
    """Log curves at the number of steps done, and validate after the last step too, which may be an early one.

    Lightning's own step is one too high after a resume between epochs, and one too low in validation.
    """

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        """Train no further if the checkpoint is that of a run which was stopped early."""
        stopped = any(early.stopping_reason.value for early in trainer.early_stopping_callbacks)
        best: Any = trainer.checkpoint_callback
        trainer.should_stop |= stopped and bool(getattr(best, "best_metrics", None))  # not so in another folder

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        set_logged_step(trainer, trainer.global_step)

    on_validation_start = on_test_start = on_train_batch_start  # type: ignore[assignment]

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Request a stop at the last step. Lightning validates before it stops, if no interval ends there."""
        if trainer.global_step >= trainer.estimated_stepping_batches:
            trainer.should_stop = True


class BatchCurves(Callback):
    """Log how similar and how often repeated the sentences of a batch are.

    The curves are computed at the steps that are logged, and not at every step. train/positive_similarity and
    train/negative_similarity are mean cosines of anchors. train/duplicates is the share of rows that have one of their
    own sentences among their negatives. With several data sets, train/loss/NAME is the loss of one of them.

    A validation logs a warning, once, if there have been duplicates since the one before.

    Attributes:
        duplicates: this device's values of this curve since the last validation; None after the warning.
    """

    def __init__(self) -> None:
        self.duplicates: list[Tensor] | None = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if not (isinstance(pl_module, SimCSEModule) and pl_module.step and logs_step(trainer, pl_module.step)):
            return
        batch = pl_module.step.batch
        if batch.embedded:
            for name, similarity in mean_similarities(batch).items():
                batch.log(name, similarity)
        if pl_module.objective_of(batch.dataset).contrasts:
            share = batch.split.weight * share_of_duplicates(batch)
            batch.log("duplicates", share)
            if self.duplicates is not None:
                self.duplicates.append(share)  # without waiting for its device
        if batch.dataset:
            batch.log(f"loss/{batch.dataset}", pl_module.step.loss)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn of duplicates, unless all losses that can mask them do."""
        if not self.duplicates:
            return
        share = float(mean_over_ranks(torch.stack(self.duplicates)).mean())
        parts = pl_module.named_modules()
        masked = {name: part.mask_duplicates for name, part in parts if hasattr(part, "mask_duplicates")}
        warn = share > 0 and not (masked and all(masked.values()))
        self.duplicates = None if warn else []
        if warn and trainer.is_global_zero:
            nested = [name for name in masked if {*name.split(".")} == {"objective"}]  # Matryoshka's has another one
            option = f"{(nested or ['objective'])[0]}.mask_duplicates=true"
            advice = f"{option} leaves out such negatives" if masked else "this loss cannot leave them out"
            log.warning(_DUPLICATES, 100 * share, advice)


class GeometryCurves(Callback):
    """Log the bound of section 5 of the paper for all validation embeddings (see metrics.gram_bound).

    geometry/gram_sum is the paper's Sum(WW^T). It bounds geometry/largest_eigenvalue if all cosines are
    0 or more. geometry/nonnegative_cosines is the share of such cosines. geometry/trace is the number of
    embeddings. They are not logged for more than 20,000 sentences: the time is quadratic in their number.
    """

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, EncoderModule)
        vectors = pl_module.vectors()
        if len(vectors) > _MOST_VECTORS:
            return
        bound = trainer.strategy.broadcast(gram_bound(vectors) if trainer.is_global_zero else {})
        bound["nonnegative_cosines"] = bound.pop("nonnegative")
        curves = {logged(name): value for name, value in bound.items()}
        pl_module.log_dict(curves, sync_dist=True)  # equal on all ranks; without it Lightning warns


class SpeedCurves(Callback):
    """Log the training speed.

    speed/sentences_per_second counts the sentences of all devices and includes loading.
    speed/waiting_for_data is the share of the time in which a device waited for its batch.
    """

    _since: float | None = None
    _waited = 0.0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._since = None  # excludes the time of validations and checkpoints

    def on_train_batch_start(self, *_: Any) -> None:
        now = time.perf_counter()
        self._since = now if self._since is None else self._since
        self._waited = now - self._since

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert self._since is not None
        now = time.perf_counter()
        seconds, self._since = now - self._since, now
        if not (isinstance(pl_module, SimCSEModule) and pl_module.step and logs_step(trainer, pl_module.step)):
            return
        sentences = batch["input_ids"].shape[:2].numel() * world_size()
        speeds = {"sentences_per_second": sentences / seconds, "waiting_for_data": self._waited / seconds}
        pl_module.step.batch.curves |= {f"speed/{name}": value for name, value in speeds.items()}


class ProgressBar(LightningProgressBar):
    """A bar over all steps of the run, with the time left and the last logged loss, and one over a validation or test.

    Without a terminal, each validation is a line.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bar = counting_bar("{task.fields[loss]}")

    def disable(self) -> None:  # Lightning calls this on other ranks than the first
        self._bar.disable = True

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._bar.start()

    def teardown(self, *_: Any, **__: Any) -> None:
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        self._bar.stop()

    on_exception = teardown  # so that the error is below them

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        steps, done = trainer.estimated_stepping_batches, trainer.global_step
        self._training = self._bar.add_task("training", total=steps, completed=done, loss="")

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self._bar.disable:
            return
        fields: dict[str, Any] = {}
        if logs_step(trainer):  # in other steps, reading the loss would wait for the GPU
            step = getattr(pl_module, "step", None)  # it is logged after the callbacks
            if (loss := step.loss if step else trainer.callback_metrics.get("train/loss")) is not None:
                fields["loss"] = f"loss {float(loss):.3f}"
        self._bar.update(self._training, completed=trainer.global_step, **fields)

    def on_validation_start(self, trainer: Trainer, *_: Any) -> None:
        batches = trainer.num_test_batches if trainer.testing else trainer.num_val_batches
        self._evaluation = self._bar.add_task("test" if trainer.testing else "validation", total=sum(batches), loss="")

    def on_validation_batch_end(self, *_: Any) -> None:
        self._bar.advance(self._evaluation)

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        self._bar.remove_task(self._evaluation)
        monitor = getattr(trainer.checkpoint_callback, "monitor", None)
        score = trainer.callback_metrics.get(monitor or "")
        if score is not None and trainer.is_global_zero and self._bar.disable and not trainer.testing:
            log.info("step %d: %s %.4f", trainer.global_step, monitor, score)

    on_test_start = on_validation_start  # type: ignore[assignment]
    on_test_batch_end = on_validation_batch_end  # type: ignore[assignment]
    on_test_end = on_validation_end  # type: ignore[assignment]


@torch.no_grad()
def mean_similarities(batch: EmbeddedBatch) -> dict[str, Tensor]:
    """Return the mean cosine of anchors with their positives, and with this device's negatives.

    They are two scalars: nan if there are no positives, or no negatives. Copies do not count.
    """
    positives = batch.views(Role.POSITIVE)
    anchors = unit_vectors(batch.embeddings[:, 0])
    positive = negative = anchors.sum() * torch.nan
    if compared := [*positives, *batch.views(Role.NEGATIVE)]:
        others = unit_vectors(select_views(batch.embeddings, compared))
        kept = torch.ones_like(others[..., 0]) if batch.copies is None else 1.0 * ~select_views(batch.copies, compared)
        others, own = others * kept[..., None], kept[:, : len(positives)].sum()
        cosines = (anchors[:, None] * others[:, : len(positives)]).sum()
        total = (anchors.sum(dim=0) * others.flatten(0, 1).sum(dim=0)).sum()  # @ would be autocast to half precision
        count = len(anchors) * kept.sum() - own
        positive = cosines / own
        negative = ((total - cosines) / count).masked_fill(count == 0, torch.nan)
    return {"positive_similarity": positive, "negative_similarity": negative}


def share_of_duplicates(batch: EmbeddedBatch) -> Tensor:
    """Return the share of this device's rows that have one of their own sentences among their negatives, a scalar.

    A negative in a template of its own is another text.
    """
    assert batch.encoder is not None
    sentences, negatives = batch.views(Role.ANCHOR, Role.POSITIVE), batch.views(Role.NEGATIVE)
    if (templates := batch.encoder.templates).texts:
        shared = {templates.text_of(view) for view in sentences}
        negatives = [view for view in negatives if templates.text_of(view) in shared]
    hashes = select_views(hash_token_ids(batch.inputs), [*sentences, *negatives])
    repeated = duplicate_negatives(hashes, batch.gather(hashes), batch.split.label_offset, len(sentences) - 1)
    if batch.gathered_copies is not None:
        repeated = repeated & ~select_views(batch.gathered_copies, [*sentences, *negatives])
    return repeated.flatten(1).any(dim=1).float().mean()
