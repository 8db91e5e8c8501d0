"""Lightning's trainer in the fastest precision of the device."""

import os
from typing import Any

import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import Trainer

from simcse_pl.utils.errors import UserError, first_line


def has_bf16(device: str) -> bool:
    """Return whether a type of device (`cpu`, `cuda`) has hardware for bfloat16, so that it is faster than float32."""
    if device == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return device == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def make_trainer(precision: str | int | None = "auto", accelerator: str = "auto", **options: Any) -> Trainer:
    """Return Lightning's trainer; raise UserError if an option is invalid.

    Args:
        precision: one of Lightning's, or `auto`: bf16-mixed if the hardware supports it, else 32-true.
            With bf16-mixed, weights, normalization, the loss and the optimizer stay in float32.
        options: further arguments of the trainer. If `max_steps` is positive, `max_epochs` is ignored.
    """
    every = options.get("val_check_interval", 1)
    if not (type(every) is int and every >= 1) and not (type(every) is float and 0 < every <= 1):
        raise UserError(f"val_every={every}: it must be a whole number of steps, at least 1")
    if (options.get("log_every_n_steps") or 0) < 0:
        raise UserError(f"log_every={options['log_every_n_steps']}: it must be 0 or more")
    if (options.get("gradient_clip_val") or 0) < 0:
        raise UserError(f"trainer.gradient_clip_val={options['gradient_clip_val']}: it must be 0 or more, or null")
    if 0 in (options.get("max_epochs"), options.get("max_steps")):
        raise UserError("no steps to train: increase trainer.max_epochs or trainer.max_steps")
    if (options.get("max_steps") or -1) > 0:
        options["max_epochs"] = -1  # otherwise Lightning stops at whichever comes first
    devices, cores = options.get("devices", 1), os.cpu_count() or 1
    if _device(accelerator) == "cpu" and type(devices) is int and devices > cores:
        raise UserError(f"trainer.devices={devices}: this machine has {cores} CPU cores, and no other devices")
    if precision == "auto":
        precision = "bf16-mixed" if has_bf16(_device(accelerator)) else "32-true"
    try:
        return Trainer(precision=precision, accelerator=accelerator, **options)  # type: ignore[arg-type]
    except (MisconfigurationException, ModuleNotFoundError, TypeError, ValueError) as error:
        raise UserError(f"trainer: {first_line(error)}") from error


def _device(accelerator: str) -> str:
    """Return torch's name of the device that Lightning uses for an accelerator."""
    if accelerator not in ("auto", "gpu"):
        return accelerator
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
