"""Callbacks: validation at the end of training and the best of it; speed; the progress bar."""

import time
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import RichProgressBar

from simcse_pl.distributed import world_size


class BestValidation(Callback):
    """Sees to it that the last step is validated, and remembers the metrics of the best validation.

    Lightning validates every so many steps; after the last of them it would stop without.

    Args:
        monitor: the metric that says which is best; more is better.
    """

    def __init__(self, monitor: str = "val/spearman") -> None:
        self.monitor = monitor
        self.step: int | None = None
        self.metrics: dict[str, float] = {}

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """At the last step ask for a stop, which makes Lightning validate first."""
        if trainer.global_step >= trainer.estimated_stepping_batches:
            trainer.should_stop = True

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember this validation if it is the best one while training."""
        if trainer.state.fn != "fit":
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("val/")}
        if self.step is None or metrics[self.monitor] > self.metrics[self.monitor]:
            self.step, self.metrics = trainer.global_step, metrics

    def state_dict(self) -> dict[str, Any]:
        """What goes into a checkpoint."""
        return {"step": self.step, "metrics": self.metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.step, self.metrics = state_dict["step"], state_dict["metrics"]


class Speed(Callback):
    """Logs speed/sentences_per_second: views through the encoder, over all devices, loading included."""

    def __init__(self) -> None:
        self._since: float | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._since = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave validation out."""
        self._since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the rate since the step before."""
        now = time.perf_counter()
        if self._since is not None:
            sentences = batch["input_ids"].shape[:2].numel() * world_size()
            pl_module.log("speed/sentences_per_second", sentences / (now - self._since))
        self._since = now


class ProgressBar(RichProgressBar):
    """Lightning's, without the loggers' version number."""

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """What stands at the bar's right."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        return metrics
