"""Callbacks: per-step seeding, checkpoints, warnings, curves, and progress."""

import logging
import sys
import time
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint, RichProgressBar

from simcse_pl.evaluation.metrics import gram_bound
from simcse_pl.results.run_files import VALIDATION_PREFIXES
from simcse_pl.training.encoder_module import EncoderModule
from simcse_pl.utils.distributed import rank, world_size
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.validation import check_seed

log = logging.getLogger(__name__)

_COLLAPSED_ABOVE = -0.01  # uniformity: a mean squared distance of 0.005; pretrained encoders have 0.04


class SeedEveryStep(Callback):
    """Seed torch before every batch, by the run's seed, the batch's number and the rank.

    So a resumed run draws the same dropout masks and masked tokens as an uninterrupted one, and
    each rank draws its own.

    Args:
        seed: the run's seed.

    Raises:
        UserError: if the seed is out of range.
    """

    def __init__(self, seed: int) -> None:
        check_seed(seed)
        self.seed = seed

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Seed the generators of the CPU and of all accelerators."""
        numbers = [self.seed, trainer.fit_loop.total_batch_idx, rank()]
        torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]))


class ValidateAtEnd(Callback):
    """Validate after the last step too, even if it does not end a validation interval."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """At the last step, request a stop: Lightning validates before it."""
        if trainer.global_step >= trainer.estimated_stepping_batches:
            trainer.should_stop = True


class BestCheckpoint(ModelCheckpoint):
    """Lightning's ModelCheckpoint, which also stores the step and the metrics of the best one."""

    best_step: int = 0
    best_metrics: dict[str, float] = {}  # noqa: RUF012 - replaced as a whole, never changed

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save a checkpoint if this validation is the best one."""
        score = self.best_model_score
        super().on_validation_end(trainer, pl_module)
        if self.best_model_score is not None and (score is None or self.best_model_score != score):
            metrics = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith(VALIDATION_PREFIXES)}
            self.best_step, self.best_metrics = trainer.global_step, metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return super().state_dict() | {"best_step": self.best_step, "best_metrics": self.best_metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state; in another folder, Lightning starts with no best checkpoint."""
        super().load_state_dict(state_dict)
        if self.best_model_score is not None:
            self.best_step, self.best_metrics = state_dict["best_step"], state_dict["best_metrics"]


class LastCheckpoint(ModelCheckpoint):
    """Lightning's ModelCheckpoint, written at every n-th validation and at the last one.

    Args:
        every_n_validations: 1 or more. A killed run repeats the steps after its last checkpoint.
        options: options of ModelCheckpoint.

    Raises:
        UserError: if a value is out of range.
    """

    def __init__(self, every_n_validations: int = 1, **options: Any) -> None:
        super().__init__(**options)
        if every_n_validations < 1:
            raise UserError(f"callbacks.last.every_n_validations={every_n_validations}: it must be at least 1")
        self.every_n_validations = every_n_validations
        self._since = 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the checkpoint if it is due."""
        self._since += trainer.state.fn == "fit"
        if self._since >= self.every_n_validations or trainer.should_stop:
            self._since = 0
            super().on_validation_end(trainer, pl_module)


class _WarnOnShare(Callback):
    """Warn once if the mean of a curve between two validations is above a limit."""

    curve: str
    above = 0.0

    def __init__(self) -> None:
        self._shares: list[torch.Tensor] = []
        self._warned = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Store the step's share, without waiting for its device."""
        share = trainer.callback_metrics.get(self.curve)
        if share is not None and not self._warned:
            self._shares.append(share)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn if the mean is above the limit."""
        share = float(torch.stack(self._shares).mean()) if self._shares else 0.0
        self._shares.clear()
        if share > self.above and not self._warned and (message := self.message(pl_module.objective)):
            self._warned = True
            if trainer.is_global_zero:
                log.warning("%.2f%% %s", 100 * share, message)

    @abstractmethod
    def message(self, objective: Any) -> str | None:
        """Return the warning that follows the percentage; None if the objective needs none."""


class WarnOnDuplicates(_WarnOnShare):
    """Warn once if rows have their own sentence among their negatives."""

    curve = "train/duplicates"

    def message(self, objective: Any) -> str | None:
        """Suggest objective.mask_duplicates, unless it is set."""
        if getattr(objective, "mask_duplicates", False):
            return None
        return (
            "of the rows so far had their own sentence among their negatives, because the data repeats it: "
            "objective.mask_duplicates=true leaves out such negatives"
        )


class WarnOnMaskedNegatives(_WarnOnShare):
    """Warn once if objective.false_negative_threshold leaves out most negatives."""

    curve = "train/masked_negatives"
    above = 0.5

    def message(self, objective: Any) -> str | None:
        """Suggest a higher threshold or a guide."""
        threshold = getattr(objective, "false_negative_threshold", None)
        another = "another" if getattr(objective, "guide", None) else "a fixed encoder as"
        return (
            f"of the negatives so far were left out, because their cosine is above "
            f"objective.false_negative_threshold={threshold}: raise it, or set {another} objective.guide"
        )


class WarnOnCollapse(Callback):
    """Warn once, at a validation after training has started, if all embeddings are nearly equal."""

    def __init__(self) -> None:
        self._warned = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check val/uniformity, which is 0 for equal embeddings."""
        uniformity = trainer.callback_metrics.get("val/uniformity")
        if not self._warned and trainer.global_step and uniformity is not None and uniformity > _COLLAPSED_ABOVE:
            self._warned = True
            if trainer.is_global_zero:
                log.warning(
                    "step %d: the embeddings have collapsed (val/uniformity is %.2g): lower optimizer.lr, or check "
                    "that the sentences of a batch differ",
                    trainer.global_step,
                    uniformity,
                )


class GeometryCurves(Callback):
    """Log the quantities of section 5 of the paper for all validation embeddings.

    They are geometry/gram_sum, the paper's Sum(WW^T); geometry/largest_eigenvalue, which it bounds
    if all cosines are 0 or more; geometry/nonnegative_cosines, the share of such cosines; and
    geometry/trace, the number of embeddings. See metrics.gram_bound.
    """

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compute them from the embeddings of all validation sentences."""
        assert isinstance(pl_module, EncoderModule)
        bound = gram_bound(pl_module.vectors())
        curves = {
            "geometry/gram_sum": bound.gram_sum,
            "geometry/largest_eigenvalue": bound.largest_eigenvalue,
            "geometry/nonnegative_cosines": bound.nonnegative,
            "geometry/trace": bound.trace,
        }
        pl_module.log_dict(curves, sync_dist=True)  # equal on all ranks; without it Lightning warns


class Speed(Callback):
    """Log speed/sentences_per_second, with loading, over all devices, and speed/waiting_for_data.

    The latter is the share of that time in which this device waited for its batch.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._waited = 0.0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Exclude the time of validations and checkpoints."""
        self._since = None

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Measure the time since the last step."""
        now = time.perf_counter()
        self._since = now if self._since is None else self._since
        self._waited = now - self._since

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the speed and the share since the last step."""
        assert self._since is not None
        sentences = batch["input_ids"].shape[:2].numel() * world_size()
        now = time.perf_counter()
        # as CPU tensors: Lightning would copy floats to the GPU, and wait for it
        pl_module.log("speed/sentences_per_second", torch.tensor(sentences / (now - self._since)))
        pl_module.log("speed/waiting_for_data", torch.tensor(self._waited / (now - self._since)))
        self._since = now


class ProgressBar(RichProgressBar):
    """Lightning's progress bar with the last logged loss; a line per validation if not in a terminal.

    Lightning would read the loss from the GPU in every step, and wait for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._loss: float | None = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the step and the score if there is no terminal."""
        super().on_validation_end(trainer, pl_module)
        monitor = getattr(trainer.checkpoint_callback, "monitor", None)
        score = trainer.callback_metrics.get(monitor or "")
        if score is not None and trainer.is_global_zero and not sys.stdout.isatty():
            log.info("step %d: %s %.4f", trainer.global_step, monitor, score)

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Return the metrics to show."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.training and every and trainer.global_step % every == 0:
            loss = trainer.callback_metrics.get("train/loss")
            self._loss = self._loss if loss is None else float(loss)
        return metrics if self._loss is None else metrics | {"train/loss": self._loss}

    def _get_train_description(self, current_epoch: int) -> str:
        """Show no last epoch if only the steps are limited; Lightning would show -2."""
        if self.trainer.max_epochs == -1:
            return f"{f'Epoch {current_epoch}':{len(self.validation_description)}}"
        return super()._get_train_description(current_epoch)
