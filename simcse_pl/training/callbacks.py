"""Callbacks: chance by the step, validation at the end, checkpoints, curves of geometry and speed, progress."""

import logging
import sys
import time
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint, RichProgressBar
from torchmetrics.utilities import dim_zero_cat

from simcse_pl.evaluation.metrics import gram_bound
from simcse_pl.results.run_files import VALIDATION_PREFIXES
from simcse_pl.training.validation_metrics import Uniformity
from simcse_pl.utils.distributed import rank, world_size
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.validation import check_seed

log = logging.getLogger(__name__)

_COLLAPSED_ABOVE = -0.01  # of uniformity: a mean squared distance of 0.005, where untrained encoders have 0.04


class SeedEveryStep(Callback):
    """Seeds torch anew before every batch, by the seed, the batch's number and the rank.

    So dropout and masked tokens are the same in a run that was interrupted as in one that was not, and no two
    ranks drop out alike.

    Args:
        seed: of the run.

    Raises:
        UserError: a seed out of range.
    """

    def __init__(self, seed: int) -> None:
        check_seed(seed)
        self.seed = seed

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Seed the CPU's generator and every accelerator's."""
        numbers = [self.seed, trainer.fit_loop.total_batch_idx, rank()]
        torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]))


class ValidateAtEnd(Callback):
    """Sees to it that the last step is validated; Lightning validates every so many steps and then stops."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """At the last step ask for a stop, which makes Lightning validate first."""
        if trainer.global_step >= trainer.estimated_stepping_batches:
            trainer.should_stop = True


class BestCheckpoint(ModelCheckpoint):
    """Lightning's, which also remembers the step and all validation metrics of the best checkpoint."""

    best_step: int = 0
    best_metrics: dict[str, float] = {}  # noqa: RUF012 - replaced whole, never changed

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save if this validation is the best, and remember it then."""
        score = self.best_model_score
        super().on_validation_end(trainer, pl_module)
        if self.best_model_score is not None and (score is None or self.best_model_score != score):
            metrics = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith(VALIDATION_PREFIXES)}
            self.best_step, self.best_metrics = trainer.global_step, metrics

    def state_dict(self) -> dict[str, Any]:
        """What goes into a checkpoint."""
        return super().state_dict() | {"best_step": self.best_step, "best_metrics": self.best_metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint; in another folder the best is looked for anew."""
        super().load_state_dict(state_dict)
        if self.best_model_score is not None:
            self.best_step, self.best_metrics = state_dict["best_step"], state_dict["best_metrics"]


class LastCheckpoint(ModelCheckpoint):
    """Lightning's checkpoint, written at some validations only, and at the last.

    Args:
        every_n_validations: 1 or more; a run that is killed repeats the steps since the last that was written.
        options: of ModelCheckpoint.

    Raises:
        UserError: a value out of range.
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
    """Warns once, at a validation, of a curve whose mean over the steps so far is above a limit."""

    curve: str
    above = 0.0

    def __init__(self) -> None:
        self._shares: list[torch.Tensor] = []
        self._told = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the step's share, on its device."""
        share = trainer.callback_metrics.get(self.curve)
        if share is not None and not self._told and self.advice(pl_module.objective):
            self._shares.append(share)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn if the mean share since the last validation is above the limit."""
        share = float(torch.stack(self._shares).mean()) if self._shares else 0.0
        self._shares.clear()
        if share > self.above and not self._told:
            self._told = True
            if trainer.is_global_zero:
                log.warning("%.2f%% of %s", 100 * share, self.advice(pl_module.objective))

    @abstractmethod
    def advice(self, objective: Any) -> str | None:
        """Return what the share is of, and what to do; None for an objective that needs no warning."""


class WarnOnDuplicates(_WarnOnShare):
    """Warns once, at a validation, if rows had their own sentence among their negatives, which mask_duplicates ends."""

    curve = "train/duplicates"

    def advice(self, objective: Any) -> str | None:
        """Name the option, where it is not set."""
        if getattr(objective, "mask_duplicates", False):
            return None
        return (
            "the rows so far had their own sentence among their negatives, as the data repeats it: "
            "objective.mask_duplicates=true leaves such negatives out"
        )


class WarnOnMaskedNegatives(_WarnOnShare):
    """Warns once, at a validation, if most negatives were left out as too near: there is little left to learn from."""

    curve = "train/masked_negatives"
    above = 0.5

    def advice(self, objective: Any) -> str | None:
        """Name the options."""
        threshold = getattr(objective, "false_negative_threshold", None)
        another = "another" if getattr(objective, "guide", None) else "a fixed encoder as"
        return (
            f"the negatives so far were left out of the loss: they are nearer than objective.false_negative_threshold="
            f"{threshold}. Raise it, or set {another} objective.guide"
        )


class WarnOnCollapse(Callback):
    """Warns once, at a validation, if all embeddings are nearly one and the same."""

    def __init__(self) -> None:
        self._told = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at val/uniformity, which is 0 where they are; of an encoder that has been trained, at least a step."""
        uniformity = trainer.callback_metrics.get("val/uniformity")
        if not self._told and trainer.global_step and uniformity is not None and uniformity > _COLLAPSED_ABOVE:
            self._told = True
            if trainer.is_global_zero:
                log.warning(
                    "step %d: the embeddings have collapsed, val/uniformity is %.2g: lower optimizer.lr, or see to it "
                    "that the sentences of a batch differ",
                    trainer.global_step,
                    uniformity,
                )


class GeometryCurves(Callback):
    """Logs what section 5 of the paper argues with, over all validation embeddings (see geometry.gram_bound).

    These are geometry/gram_sum, the paper's Sum(WW^T); geometry/largest_eigenvalue, which it bounds where all cosines
    are 0 or more; geometry/nonnegative_cosines, their share that is; and geometry/trace, the number of embeddings.
    """

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the embeddings that uniformity is measured on, of all ranks."""
        uniformity = pl_module.uniformity
        assert isinstance(uniformity, Uniformity)
        with uniformity.sync_context():
            bound = gram_bound(dim_zero_cat(uniformity.embeddings))
        curves = {
            "geometry/gram_sum": bound.gram_sum,
            "geometry/largest_eigenvalue": bound.largest_eigenvalue,
            "geometry/nonnegative_cosines": bound.nonnegative,
            "geometry/trace": bound.trace,
        }
        pl_module.log_dict(curves, sync_dist=True)  # the same on all ranks; Lightning warns of what is not synchronized


class Speed(Callback):
    """Logs speed/sentences_per_second: views through the encoder, over all devices, loading included.

    And speed/waiting_for_data, the share of that time in which this device waited for its batch.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._waited = 0.0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave validation and the writing of checkpoints out."""
        self._since = None

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Start the clock where it is not running, else see how long it has been since the step before."""
        now = time.perf_counter()
        self._since = now if self._since is None else self._since
        self._waited = now - self._since

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the rate and the share since the step before."""
        assert self._since is not None  # since the batch's start at the latest
        sentences = batch["input_ids"].shape[:2].numel() * world_size()
        now = time.perf_counter()
        # as tensors of the host: Lightning would copy floats to the GPU, and wait for the GPU
        pl_module.log("speed/sentences_per_second", torch.tensor(sentences / (now - self._since)))
        pl_module.log("speed/waiting_for_data", torch.tensor(self._waited / (now - self._since)))
        self._since = now


class ProgressBar(RichProgressBar):
    """Lightning's progress bar, with the loss of the last logged step; without a terminal, a line per validation.

    Lightning would read the loss from the GPU at every step, and wait for the GPU each time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._loss: float | None = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say how far training is."""
        super().on_validation_end(trainer, pl_module)
        score = trainer.callback_metrics.get("val/spearman")
        if score is not None and trainer.is_global_zero and not sys.stdout.isatty():
            log.info("step %d: Spearman's correlation on dev %.2f", trainer.global_step, 100 * score)

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Return what the bar shows on its right."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.training and every and trainer.global_step % every == 0:
            loss = trainer.callback_metrics.get("train/loss")
            self._loss = self._loss if loss is None else float(loss)
        return metrics if self._loss is None else metrics | {"train/loss": self._loss}

    def _get_train_description(self, current_epoch: int) -> str:
        """Leave out the number of epochs where only the number of steps is limited; Lightning would print -2."""
        if self.trainer.max_epochs == -1:
            return f"{f'Epoch {current_epoch}':{len(self.validation_description)}}"
        return super()._get_train_description(current_epoch)
