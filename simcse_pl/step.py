"""A training step: the numbers that are read and logged when it is over."""

from dataclasses import dataclass, field
from typing import Any

import torch
from pytorch_lightning import Trainer
from torch import Tensor

from simcse_pl.losses.loss import EmbeddedBatch
from simcse_pl.utils.distributed import mean_over_ranks


@dataclass
class TrainingStep:
    """A training step: what its parts and callbacks need of it. Callbacks may add to `batch.curves`.

    Args:
        number: the number of the step, from 1.
        batch: this device's rows, embedded if a loss asked for it.
        loss: the mean over devices, a scalar.
        asked: above 0 if a signal asked one of several devices to stop, a scalar.
        lr: the learning rate.
        norm: the norm of the gradient, a scalar, once it is known.
    """

    number: int
    batch: EmbeddedBatch
    loss: Tensor
    asked: Tensor | None
    lr: Any
    norm: Tensor | None = None
    sent: Any = field(default=None, init=False)  # the event after the copy, on a device with a stream
    numbers: Any = field(default=(), init=False)

    def send(self) -> None:
        """Begin to copy the numbers to the host. If the device has a stream, the host does not wait."""
        self.numbers = [x for x in (self.loss, self.norm, self.asked) if x is not None]
        if (device := self.loss.device).type not in ("cpu", "mps"):
            self.numbers = torch.stack([x.float() for x in self.numbers]).to("cpu", non_blocking=True)
            self.sent = torch.get_device_module(device).current_stream().record_event()

    def read(self) -> list[float]:
        """Wait for the numbers: the loss, the norm, and whether one of several devices was asked to stop."""
        if self.sent:
            self.sent.synchronize()
        return [float(x) for x in self.numbers]

    def log(self, trainer: Trainer) -> None:
        """Log the numbers, and the means of the batch's curves over devices.

        `LightningModule.log` would take half a millisecond of the host's time for each value.
        """
        values = {"train/loss": self.loss, "train/lr": self.lr, "train/grad_norm": self.norm}
        if curves := self.batch.curves:
            local = torch.stack([torch.as_tensor(value, device=self.loss.device) for value in curves.values()])
            # a rank with one row has no negatives, so their similarity is nan there
            values |= zip(curves, mean_over_ranks(local, ignore_nan=True), strict=True)
        numbers = {name: float(torch.as_tensor(value, dtype=torch.float32)) for name, value in values.items()}
        tensors = {name: torch.tensor(value) for name, value in numbers.items()}
        trainer.callback_metrics.update(tensors)
        trainer.logged_metrics.update(tensors)
        for logger in trainer.loggers:
            logger.log_metrics(numbers | {"epoch": trainer.current_epoch}, trainer.global_step - 1)  # Lightning's count
            logger.save()  # a killed run must not lose the points up to its checkpoint


def logs_step(trainer: Trainer, step: TrainingStep | None = None) -> bool:
    """Return whether Lightning logs the training step that ends. Values of other steps cost time, and are lost.

    A `step` has not ended while the gradients of further batches are added.
    """
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    if step and step.number > trainer.global_step:
        return False
    return every > 0 and (trainer.should_stop or trainer.global_step % every == 0)
