"""The precision that a device computes fastest in, and a trainer that takes it."""

import os
from typing import Any

import torch
from pytorch_lightning import Trainer

from simcse_pl.errors import UserError


def has_bf16(device: str) -> bool:
    """Whether a device's hardware multiplies bfloat16, faster than float32.

    Args:
        device: `cpu`, `cuda`, or another of torch's names.
    """
    if device == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return device == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def make_trainer(precision: str | int | None = "auto", accelerator: str = "auto", **options: Any) -> Trainer:
    """Lightning's trainer, which knows no `auto` of precision.

    Args:
        precision: one of Lightning's; or `auto`: bf16-mixed where the hardware has it (weights, normalization, the
            loss and the optimizer stay in float32), else 32-true.
        accelerator: Lightning's.
        options: further arguments of Lightning's trainer.

    Raises:
        UserError: validations that are not so many steps apart, or parts of an epoch; more ranks than a CPU has cores.
    """
    every = options.get("val_check_interval", 1)
    steps, part = type(every) is int and every >= 1, type(every) is float and 0 < every <= 1
    if not (steps or part):
        raise UserError(f"val_every={every}: it must be a whole number of steps, at least 1")
    devices, cores = options.get("devices", 1), os.cpu_count() or 1
    if _device(accelerator) == "cpu" and type(devices) is int and devices > cores:
        raise UserError(f"trainer.devices={devices}: this machine has {cores} CPU cores, and no other devices")
    if precision == "auto":
        precision = "bf16-mixed" if has_bf16(_device(accelerator)) else "32-true"
    return Trainer(precision=precision, accelerator=accelerator, **options)  # type: ignore[arg-type]


def _device(accelerator: str) -> str:
    """What torch calls the device that Lightning takes for an accelerator."""
    if accelerator in ("auto", "gpu"):
        there = {"mps": torch.backends.mps.is_available(), "cuda": torch.cuda.is_available()}
        return next((device for device, available in there.items() if available), "cpu")
    return accelerator
