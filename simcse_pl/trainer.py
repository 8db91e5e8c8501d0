"""Lightning's trainer: in the fastest precision of the device, and without what cannot train an encoder."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from pytorch_lightning import Trainer
from pytorch_lightning.profilers import PassThroughProfiler
from pytorch_lightning.strategies import DDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy

from simcse_pl.checkpoints import BestCheckpoint
from simcse_pl.results import SPEARMAN, VALIDATION, factor, logged, lower_is_better, split_and_metric
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.private import cluster_environment, cpu_has_bf16, forks_or_spawns

if TYPE_CHECKING:
    from simcse_pl.speed.fsdp import FullyShardedStrategy


_NO_NEGATIVES = "it adds no negatives to a batch; set module.chunk_size instead"
_REFUSED = {  # callbacks, and arguments of the trainer
    **dict.fromkeys(("WeightAveraging", "StochasticWeightAveraging", "ModelPruning"), "its weights would not be saved"),
    **dict.fromkeys(("GradientAccumulationScheduler", "trainer.accumulate_grad_batches"), _NO_NEGATIVES),
    **dict.fromkeys(("LearningRateFinder", "BatchSizeFinder"), "it cannot set the option: compare values by -m"),
    "BackboneFinetuning": "set module.freeze_layers instead",
    "trainer.fast_dev_run": "it saves no encoder: set trainer.max_steps=1 instead",
    "trainer.overfit_batches": "set experiment=overfit instead",
    "trainer.limit_train_batches": "set data.limit or trainer.max_steps instead",
    "trainer.limit_val_batches": "the evaluators need all sentences of the file",
    "trainer.limit_test_batches": "the evaluators need all sentences of the file",
    "trainer.check_val_every_n_epoch": "last steps may be neither validated nor saved: set it to null, and val_every",
    "trainer.max_epochs=-1": "the schedule needs a last step: set trainer.max_steps",
}


class NoProfiler(PassThroughProfiler):
    """Lightning's default profiler without the generator that it makes for each hook of a step."""

    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def sharding(strategy: Any) -> "FullyShardedStrategy | None":
    """Return a strategy that shards the weights (see speed/fsdp.py); None for another one."""
    return strategy if getattr(strategy, "shards_weights", False) else None


def has_bf16(accelerator: str) -> bool:
    """Return whether Lightning's device of an accelerator has hardware for bfloat16, which is then the fastest."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    is_cpu = accelerator == "cpu" or (accelerator == "auto" and not torch.backends.mps.is_available())
    return is_cpu and cpu_has_bf16()


def make_trainer(
    precision: str | int | None = "auto",
    accelerator: str = "auto",
    val_check_interval: PositiveInt | Annotated[float, Field(gt=0, le=1)] = 1.0,
    log_every_n_steps: NonNegativeInt = 50,
    gradient_clip_val: NonNegativeFloat | None = None,
    **options: Any,
) -> Trainer:
    """Return Lightning's trainer; raise UserError if it cannot train an encoder.

    Args:
        precision: one of Lightning's, or `auto`: bf16-mixed if the hardware supports it, else 32-true.
            With bf16-mixed, weights, normalization, the loss, the optimizer and validation stay in float32, whose
            products `simcse train` computes in TF32 on a GPU.
        accelerator, val_check_interval, log_every_n_steps, gradient_clip_val: see Lightning's trainer.
        options: further arguments of the trainer. If `max_steps` is positive, `max_epochs` is ignored.
    """
    if (options.get("max_steps") or -1) > 0:
        options["max_epochs"] = -1  # otherwise Lightning stops at whichever comes first
    if isinstance(val_check_interval, int):  # a number of steps, which count across epochs
        options.setdefault("check_val_every_n_epoch", None)
    options.setdefault("profiler", NoProfiler())
    if precision == "auto":
        precision = "bf16-mixed" if has_bf16(accelerator) else "32-true"
    if precision in ("bf16-true", "16-true"):  # no error follows: a weight of 1 absorbs an update of less than 0.004
        mixed = precision.replace("true", "mixed")
        raise UserError(f"precision={precision}: small updates of such weights are lost: set it to {mixed}")
    if sharding(options.get("strategy")):
        options["inference_mode"] = False  # it would gather weights that cannot be trained
    if os.environ.get("SLURM_NTASKS") == "1" and not TorchElasticEnvironment.detect():
        # As outside of SLURM, this process starts the ranks. Lightning would train on one device only.
        options["plugins"] = [*(options.get("plugins") or []), LightningEnvironment()]
    try:
        trainer = Trainer(
            accelerator=accelerator,
            precision=precision,  # type: ignore[arg-type]
            val_check_interval=val_check_interval,
            log_every_n_steps=log_every_n_steps,
            gradient_clip_val=gradient_clip_val,
            **options,
        )
    except (MisconfigurationException, ModuleNotFoundError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"trainer: {first_line(error)}") from error
    _check_ranks(trainer)
    return trainer


def check_trainer(trainer: Trainer) -> None:
    """Raise UserError if a trainer cannot train SimCSE."""
    best = trainer.checkpoint_callback
    used = {kind.__name__ for callback in trainer.callbacks for kind in type(callback).__mro__}  # type: ignore[attr-defined]
    usual = {"accumulate_grad_batches": 1, "fast_dev_run": False, "overfit_batches": 0, "check_val_every_n_epoch": None}
    used |= {f"trainer.{name}" for name, value in usual.items() if getattr(trainer, name) != value}
    limits = ("limit_train_batches", "limit_val_batches", "limit_test_batches")
    used |= {f"trainer.{name}" for name in limits if str(getattr(trainer, name)) != "1.0"}  # 1 is a single batch
    used |= {"trainer.max_epochs=-1"} if trainer.max_epochs == trainer.max_steps == -1 else set()
    for name, reason in _REFUSED.items():
        if name in used:
            raise UserError(f"{name}: {reason}")
    if not isinstance(best, BestCheckpoint):
        raise UserError("callbacks: the first checkpoint must be a BestCheckpoint, which is tested at the end")
    if best.mode == "max" and lower_is_better(best.monitor or ""):
        raise UserError(f"monitor={best.monitor}: lower is better; set callbacks.best.mode=min")
    if best.mode == "min" and factor(best.monitor or "") == 100:  # a correlation or a share
        raise UserError(f"monitor={best.monitor}: higher is better; set callbacks.best.mode=max")
    if split_and_metric(best.monitor or "")[0] != VALIDATION:
        metric = (best.monitor or SPEARMAN).rpartition("/")[2]
        raise UserError(f"monitor={best.monitor}: it is not measured in validations, as {logged(metric)} is")


def _check_ranks(trainer: Trainer) -> None:
    """Raise UserError if ranks would be missing, train alone, lose their results, or hold a part of the weights."""
    strategy, devices = trainer.strategy, trainer.num_devices * trainer.num_nodes
    environment = cluster_environment(trainer)
    if forks_or_spawns(strategy):
        raise UserError("strategy: the results of spawned and forked processes are lost: set it to ddp")
    known = isinstance(strategy, SingleDeviceStrategy | DDPStrategy) and not isinstance(strategy, DeepSpeedStrategy)
    if not (known or sharding(strategy)):
        raise UserError("strategy: its gradients cannot be clipped by their norm: set trainer=ddp or trainer=fsdp")
    if trainer.num_nodes > 1 and not environment.creates_processes_externally and "NODE_RANK" not in os.environ:
        raise UserError(f"num_nodes={trainer.num_nodes}: nothing starts the other nodes: use torchrun or SLURM")
    if (started := environment.world_size()) != devices:
        asked = f"devices={trainer.num_devices}, num_nodes={trainer.num_nodes}"
        raise UserError(f"{asked}: {started} processes were started: start one for each device, and set trainer=ddp")
