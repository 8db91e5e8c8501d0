"""What is done before training: recomputed activations, frozen parameters, the optimizer, and a check of views."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import PreTrainedModel

from simcse_pl.data.collator import TrainingRows, ViewCollator
from simcse_pl.models.backbone import has_adapter, recompute_layers, run_backbone
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import EXAMPLES
from simcse_pl.utils.distributed import alone
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.tensors import evaluation_mode
from simcse_pl.utils.types import RowKind, candidates

MakeOptimizer = Callable[..., Optimizer]  # of parameters or of groups of them
MakeSchedule = Callable[..., LRScheduler]  # of an optimizer

_STEPS = ("num_training_steps", "total_steps", "T_max", "total_iters")  # how schedules name the number of steps


def prepare_backbone(encoder: SentenceEncoder, gradient_checkpointing: bool, freeze_layers: int | None) -> None:
    """Set an encoder to training mode, with recomputed activations and frozen first layers if asked to.

    The arguments are those of SimCSEModule.
    """
    backbone = encoder.backbone
    if encoder.postprocess:
        raise UserError("this encoder has a post-processing, which training would invalidate: give one without it")
    entries = len(encoder.tokenizer)
    if entries > (words := getattr(backbone.get_input_embeddings(), "num_embeddings", entries)):
        raise UserError(f"model.name: its tokenizer has {entries} entries, the model {words} embeddings: resize them")
    if getattr(backbone, "is_quantized", False) and not has_adapter(backbone):
        raise UserError("quantization: quantized weights cannot be trained: add model/adapter=lora")
    if any(weight.requires_grad and weight.dtype == torch.bfloat16 for weight in backbone.parameters()):
        raise UserError("model.dtype=bfloat16: small updates of such weights are lost: add model/adapter=lora")
    if gradient_checkpointing:
        with reraise_as("gradient_checkpointing"):  # not all architectures can
            recompute_layers(backbone)
    if freeze_layers is not None:
        freeze_first_layers(encoder, freeze_layers)
    encoder.train()  # Lightning trains each module in the mode that it is in


def freeze_first_layers(encoder: SentenceEncoder, layers: int) -> None:
    """Freeze the word embeddings and the first layers; raise UserError if no weights are left to train."""
    backbone = encoder.backbone
    if encoder.device.type == "meta":  # the first rank freezes them
        return
    inputs = {name: x[:, 0] for name, x in example_batch(encoder, RowKind()).items() if name != "roles"}
    for parameter, used in _uses(backbone, lambda: run_backbone(backbone, inputs)[: layers + 1][-1]):
        parameter.requires_grad_(not used)
    if not any(parameter.requires_grad for parameter in backbone.parameters()):
        raise UserError(f"module.freeze_layers={layers}: no weights of {type(backbone).__name__} are left to train")


def freeze_unused(module: nn.Module, losses: Sequence[Callable[[], Tensor]]) -> list[Parameter]:
    """Freeze the parameters of a module that none of some losses depends on; DDP would wait for their gradients.

    Returns:
        The parameters that some of the losses depend on, but not all.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    uses = [[used for _, used in _uses(module, loss)] for loss in losses]
    not_in_every_loss = []
    for parameter, *used in zip(parameters, *uses, strict=True):
        parameter.requires_grad_(any(used))
        if any(used) and not all(used):
            not_in_every_loss.append(parameter)
    if not any(parameter.requires_grad for parameter in parameters):
        raise UserError("no weight would be trained: the loss depends on none, or those it depends on are frozen")
    return not_in_every_loss


def example_batch(encoder: SentenceEncoder, kind: RowKind) -> dict[str, Any]:
    """Return a training batch of two rows of a kind, with equal views and labels 0, on the encoder's device."""
    collate = ViewCollator(encoder.tokenizer, encoder.max_length, encoder.templates)
    batch: dict[str, Any] = dict(collate([(EXAMPLES[1],) * len(kind.roles)] * 2))
    if kind.labels:
        shape = (2, len(candidates(kind.roles))) if kind.labels == "score_lists" else (2,)
        batch["labels"] = torch.zeros(shape, dtype=torch.int64 if kind.labels == "classes" else torch.float32)
    return {name: x.to(encoder.device) for name, x in batch.items()} | {"roles": kind.roles}


@torch.no_grad()
def check_views_differ(encoder: SentenceEncoder, sets: Iterable[TrainingRows]) -> None:
    """Raise UserError if the first two views of rows have equal tokens, and the encoder in training equal vectors.

    Most decoders have no dropout that is on by default.
    """
    with_dropout = any(isinstance(part, nn.Dropout) and part.p for part in encoder.modules())
    if encoder.device.type == "meta" or (has_adapter(encoder.backbone) and with_dropout):
        return  # before the first step, a new adapter adds 0 to each layer
    for dataset in sets:
        batch = dataset.batch([(0, row) for row in range(min(2, len(dataset.chosen)))])
        inputs = {name: x[:, :2].to(encoder.device) for name, x in batch.items() if getattr(x, "ndim", 0) == 3}
        ids = inputs["input_ids"]
        with torch.random.fork_rng(devices=[]), torch.compiler.set_stance("force_eager"):
            vectors = encoder.pool_views(inputs)
        if ids.shape[1] == 2 and torch.equal(ids[:, 0], ids[:, 1]) and torch.equal(vectors[:, 0], vectors[:, 1]):
            raise UserError(
                f"model.dropout: the two views of a sentence of {dataset.train} have equal vectors without dropout: "
                "set model.attention_dropout=0.1, model.dropout=0.1 or model/adapter=lora"
            )


def _uses(module: nn.Module, compute: Callable[[], Tensor]) -> list[tuple[Parameter, bool]]:
    """Return each trainable parameter of a module, and whether a computed tensor depends on it."""
    backbones = [part for part in module.modules() if isinstance(part, PreTrainedModel) and part.training]
    with evaluation_mode(*backbones):  # in training, some architectures skip layers at random
        with torch.random.fork_rng(devices=[]), alone():
            output = compute()
        trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
        gradients: Sequence[Tensor | None] = [None] * len(trainable)
        if output.requires_grad:  # in the same mode, as chunks are computed again
            gradients = torch.autograd.grad(output.sum(), trainable, allow_unused=True)
    return [(p, gradient is not None) for p, gradient in zip(trainable, gradients, strict=True)]


def build_optimizer(optimizer: MakeOptimizer, parameters: Sequence[Any], gradient_scaler: bool = False) -> Optimizer:
    """Return the optimizer of parameters or groups of them.

    Adam and AdamW are fused (one kernel for all parameters) unless the config sets `fused`, `foreach` or
    `differentiable`, which exclude each other. A gradient scaler cannot clip for a fused optimizer.
    """
    target = getattr(optimizer, "func", optimizer)
    adam = inspect.isclass(target) and issubclass(target, torch.optim.Adam)
    given = options_of(optimizer)
    can_fuse = adam and "fused" in inspect.signature(target).parameters
    fused = given.get("fused", can_fuse and not (given.get("foreach") or given.get("differentiable")))
    return optimizer(parameters, **({"fused": not gradient_scaler} if fused else {}))


def build_schedule(scheduler: MakeSchedule | None, optimizer: Optimizer, total_steps: float) -> LRScheduler | None:
    """Return the schedule, which gets the number of steps unless the config sets it."""
    if scheduler is None:
        return None
    warmup = options_of(scheduler).get("num_warmup_steps", 0)
    if not (isinstance(warmup, int) and warmup >= 0):  # transformers' linear schedule takes them
        raise UserError(f"scheduler.num_warmup_steps={warmup}: it is a number of steps, not a share of them")
    names = {*_STEPS} & {*inspect.signature(scheduler).parameters} - {*options_of(scheduler)}
    if names and math.isinf(total_steps):
        raise UserError("scheduler: it needs the number of steps: set the trainer's max_epochs or max_steps")
    return scheduler(optimizer, **{name: int(total_steps) for name in names})


def options_of(make: Callable[..., Any] | None) -> Mapping[str, Any]:
    """Return the options that a config sets of an optimizer or a schedule."""
    return make.keywords if isinstance(make, partial) else {}
