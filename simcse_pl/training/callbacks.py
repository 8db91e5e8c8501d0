"""Callbacks: per-step seeding, warnings, curves, and progress."""

import logging
import math
import time
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import RichProgressBar
from rich.console import Console

from simcse_pl.cpu import Speed as CpuSettings
from simcse_pl.evaluation.metrics import gram_bound
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.curves import is_logged
from simcse_pl.training.encoder_module import EncoderModule
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.distributed import rank, world_size
from simcse_pl.utils.terminal import is_terminal

log = logging.getLogger(__name__)

_MOST_VECTORS = 20_000
_COLLAPSED_ABOVE = -0.01  # uniformity: a mean squared distance of 0.005; pretrained encoders have 0.04


class SeedEveryStep(Callback):
    """Seed torch before every batch with the run's seed, the batch's number and the rank.

    A resumed run then draws the same dropout masks and masked tokens as an uninterrupted one. Each rank
    draws its own.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        """Seed the generators of the CPU and of all accelerators."""
        numbers = [self.seed, trainer.fit_loop.total_batch_idx, rank()]
        torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]))


class ValidateAtEnd(Callback):
    """Validate after the last step too, even if it does not end a validation interval."""

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Request a stop at the last step. Lightning validates before it stops."""
        if trainer.global_step >= trainer.estimated_stepping_batches:
            trainer.should_stop = True


class WarnOnShare(Callback):
    """Warn once if the mean of a curve between two validations is above a limit.

    Args:
        curve: the curve's name.
        warning: the text that follows the percentage.
        above: the limit.
        unless: an option of losses. If all losses that have it set it, there is no warning.
    """

    def __init__(self, curve: str, warning: str, above: float = 0.0, unless: str | None = None) -> None:
        self.curve, self.warning, self.above, self.unless = curve, warning, above, unless
        self._shares: list[torch.Tensor] = []
        self._warned = False

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Store the share of a step at which the curve is logged, without waiting for its device."""
        if not self._warned and is_logged(trainer) and self.curve in trainer.callback_metrics:
            self._shares.append(trainer.callback_metrics[self.curve])

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn if the mean is above the limit."""
        share = float(torch.stack(self._shares).nanmean()) if self._shares else 0.0  # nan: a batch of another data set
        self._shares.clear()
        settings = [getattr(part, self.unless or "", None) for part in pl_module.modules()]
        disabled = any(settings) and all(setting for setting in settings if setting is not None)
        if share > self.above and not disabled:
            self._warned = True
            if trainer.is_global_zero:
                log.warning("%.2f%% %s", 100 * share, self.warning)


class WarnOnCollapse(Callback):
    """Warn once, at a validation after training has started, if all embeddings are nearly equal."""

    _warned = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check val/uniformity, which is 0 for equal embeddings."""
        uniformity = trainer.callback_metrics.get("val/uniformity")
        if not self._warned and trainer.global_step and uniformity is not None and uniformity > _COLLAPSED_ABOVE:
            self._warned = True
            if trainer.is_global_zero:
                what = f"step {trainer.global_step}: the embeddings have collapsed (val/uniformity is %.2g)"
                log.warning(f"{what}: lower optimizer.lr, or check that the sentences of a batch differ", uniformity)


class CpuSpeed(Callback):
    """Train in the way that is fastest on a CPU; see `Speed`."""

    def __init__(self, speed: CpuSettings) -> None:
        self.speed = speed
        self._chosen = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Train each encoder as `speed` says."""
        if self._chosen or trainer.strategy.root_device.type != "cpu":
            return
        self._chosen = True
        assert isinstance(pl_module, SimCSEModule)
        if pl_module.compiled:
            self.speed = CpuSettings(tokens_per_pass=math.inf, fast_dropout=False)
        if trainer.is_global_zero:
            log.info("%-13s %s", "speed", self.speed)
        for encoder in [part for part in pl_module.modules() if isinstance(part, SentenceEncoder)]:
            self.speed.apply(encoder.backbone, encoder.groups)


class GeometryCurves(Callback):
    """Log the bound of section 5 of the paper for all validation embeddings (see metrics.gram_bound).

    geometry/gram_sum is the paper's Sum(WW^T). It bounds geometry/largest_eigenvalue if all cosines are
    0 or more. geometry/nonnegative_cosines is the share of such cosines. geometry/trace is the number of
    embeddings. They are not logged for more than 20,000 sentences: the time is quadratic in their number.
    """

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compute them from the embeddings of all validation sentences."""
        assert isinstance(pl_module, EncoderModule)
        vectors = pl_module.vectors()
        if len(vectors) > _MOST_VECTORS:
            return
        bound = gram_bound(vectors)
        curves = {
            "geometry/gram_sum": bound["gram_sum"],
            "geometry/largest_eigenvalue": bound["largest_eigenvalue"],
            "geometry/nonnegative_cosines": bound["nonnegative"],
            "geometry/trace": bound["trace"],
        }
        pl_module.log_dict(curves, sync_dist=True)  # equal on all ranks; without it Lightning warns


class SpeedCurves(Callback):
    """Log the training speed.

    speed/sentences_per_second counts the sentences of all devices and includes loading.
    speed/waiting_for_data is the share of the time in which this device waited for its batch.
    """

    _since: float | None = None
    _waited = 0.0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Exclude the time of validations and checkpoints."""
        self._since = None

    def on_train_batch_start(self, *_: Any) -> None:
        """Measure the time since the last step."""
        now = time.perf_counter()
        self._since = now if self._since is None else self._since
        self._waited = now - self._since

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the speed and the share since the last step."""
        assert self._since is not None
        now = time.perf_counter()
        seconds, self._since = now - self._since, now
        sentences = batch["input_ids"].shape[:2].numel() * world_size()
        # as CPU tensors: Lightning would copy floats to the GPU, and wait for it
        pl_module.log("speed/sentences_per_second", torch.tensor(sentences / seconds))
        pl_module.log("speed/waiting_for_data", torch.tensor(self._waited / seconds))


class ProgressBar(RichProgressBar):
    """Lightning's progress bar with the last logged loss; without a terminal, a line per validation.

    With `prog_bar=True`, Lightning would read the loss from the GPU in every step, and wait for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._loss: dict[str, float] = {}
        if not is_terminal(Console()):
            self.disable()  # otherwise, Rich prints the last state of every bar

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the step and the score if there is no bar."""
        super().on_validation_end(trainer, pl_module)
        monitor = getattr(trainer.checkpoint_callback, "monitor", None)
        score = trainer.callback_metrics.get(monitor or "")
        if score is not None and trainer.is_global_zero and self.is_disabled:
            log.info("step %d: %s %.4f", trainer.global_step, monitor, score)

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return the metrics to show."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        every, loss = trainer.log_every_n_steps, trainer.callback_metrics.get("train/loss")  # type: ignore[attr-defined]
        if trainer.training and loss is not None and every and trainer.global_step % every == 0:
            self._loss["train/loss"] = float(loss)
        return metrics | self._loss

    def _get_train_description(self, current_epoch: int) -> str:
        """Show no last epoch without a limit of epochs, where Lightning shows -2."""
        return super()._get_train_description(current_epoch).replace("/-2", "  ")
