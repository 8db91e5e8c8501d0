"""Where the time of training steps goes, by torch's profiler."""

from typing import Any

import pytorch_lightning as pl
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import wait_for

_MATRIX_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "_addmm_activation")
_SHOWN = 12  # operators


class Profiled(pl.Callback):
    """Profile a number of steps, beginning with step `first`."""

    def __init__(self, device: str, first: int, steps: int) -> None:
        self.device, self.first, self.last = device, first, first + steps
        activities = [ProfilerActivity.CPU, *([] if device == "cpu" else [ProfilerActivity.CUDA])]
        self.profile = profile(activities=activities)

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Start before the first of the steps, and end after the last."""
        if trainer.global_step in (self.first, self.last):
            wait_for(self.device)
            (self.profile.start if trainer.global_step == self.first else self.profile.stop)()


def shares(profiled: Any, seconds: float, device: str) -> dict[str, Any]:
    """Return which operators the device is busy with, as shares of its busy time, and the share in which it is idle.

    Args:
        profiled: a profile of some steps.
        seconds: the seconds that as many steps take without the profiler, which slows the host down.
        device: whose time it is.
    """
    time_of = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
    averages = profiled.key_averages()
    operators = {own.key: getattr(own, time_of) / 1e6 for own in averages if own.key.startswith("aten::")}
    kernels = [own for own in averages if own.device_type != DeviceType.CPU and not own.is_user_annotation]
    busy = sum(getattr(own, time_of) for own in kernels) / 1e6 if kernels else sum(operators.values())
    of_busy = {name: own / busy for name, own in sorted(operators.items(), key=lambda own: -own[1]) if own}
    return {
        "idle": max(0.0, 1 - busy / seconds),
        "matrix_products": sum(own for name, own in of_busy.items() if name.split("::")[1] in _MATRIX_PRODUCTS),
        "attention": sum(own for name, own in of_busy.items() if "attention" in name),
        "operators": dict(list(of_busy.items())[:_SHOWN]),
    }
