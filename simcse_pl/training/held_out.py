"""The loss of rows that are not trained on; data/training_set.py chooses them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from pytorch_lightning import Trainer
from torch import Tensor

from simcse_pl.utils.distributed import mean_over_ranks, rank, sum_over_ranks


def held_out_loss(
    trainer: Trainer, loss: Callable[[Mapping[str, Any]], Tensor], batches: Iterable[Mapping[str, Any]]
) -> Tensor:
    """Return the mean of a loss over batches and ranks, weighted by rows.

    The random state is the same at each call, so that the same tokens are masked.

    Args:
        trainer: gives the device and the precision.
        loss: the mean loss of a batch on the device.
        batches: this rank's part of each batch, with tensors [rows, ...].
    """
    device = trainer.strategy.root_device
    total, rows = torch.zeros(2, device=device)
    devices = [] if device.type == "cpu" else [device]
    forked = torch.random.fork_rng(devices, device_type=device.type if devices else "cuda")
    with forked, trainer.precision_plugin.val_step_context():
        torch.manual_seed(rank())
        for batch in map(trainer.strategy.batch_to_device, map(dict, batches)):
            count = sum_over_ranks(torch.tensor(len(batch["input_ids"]), device=device))
            total += count * mean_over_ranks(loss(batch))
            rows += count
    mean: Tensor = total / rows
    return mean
