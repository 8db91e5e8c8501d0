"""SimCSEModule: trains a sentence encoder by SimCSE's loss, or by any other, as a LightningModule."""

import logging
import math
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from pydantic import NonNegativeInt, PositiveInt
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn

from simcse_pl.datamodule import prefixed_by_dataset
from simcse_pl.encoder_module import EncoderModule
from simcse_pl.losses.loss import EmbeddedBatch, Loss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.preparation import (
    MakeOptimizer,
    MakeSchedule,
    build_optimizer,
    build_schedule,
    check_views_differ,
    example_batch,
    freeze_unused,
    prepare_backbone,
)
from simcse_pl.results import logged
from simcse_pl.step import TrainingStep, logs_step
from simcse_pl.utils.code import optional
from simcse_pl.utils.distributed import mean_over_ranks, rank, split_batch
from simcse_pl.utils.errors import UserError, did_you_mean, prefixed, reraise_as
from simcse_pl.utils.private import ignore_in_ddp
from simcse_pl.utils.types import Batch, CompileMode, RowKind, default_roles

if TYPE_CHECKING:
    from simcse_pl.methods.momentum_queue import MomentumQueue
    from simcse_pl.speed.captured import CapturedSteps

log = logging.getLogger(__name__)


class SimCSEModule(EncoderModule):
    """Train an encoder on batches of views.

    The loss of a step is that of the objective plus those of the auxiliary losses, each times its weight. If rows are
    held out, their mean loss is logged as val/loss, or val/DATASET/loss. A subclass can replace `loss`.

    The trainer may also get loaders, of batches as `batch_of` takes them, in place of a SentenceDataModule. Unless
    their rows are pairs, call `prepare` with the kind of the rows before.

    Args:
        encoder: the encoder to train.
        objective: the loss.
        optimizer: makes the optimizer from parameters, such as `functools.partial(torch.optim.AdamW, lr=3e-5)`.
        scheduler: makes the schedule of the learning rate from the optimizer; None for a constant rate. It is
            advanced every step.
        auxiliary: losses that are added to the objective, by name. Weight 0 disables a loss. Each is logged as
            train/NAME.
        positive_encoder: a second encoder, for all views but the first (the two independent encoders
            of Table 2). Only `encoder` is measured and saved.
        shared_dropout_mask: whether all views of a row use the same dropout mask ("fixed 0.1" in
            Table 3).
        queue: embeddings of past batches as further negatives.
        chunk_size: rows of a device's batch encoded at once (see gradient_cache); None for all.
        gradient_checkpointing: recompute the activations inside layers in the backward pass.
        freeze_layers: freeze the word embeddings and this many layers; None to train all. Parameters
            that no loss depends on are always frozen.
        half_weights: compute in bfloat16 throughout the backbone, with copies of its weights (see
            speed/half_weights.py), where autocast converts them for each layer. The weights remain in float32.
        cuda_graph: capture whole training steps as CUDA graphs (see speed/captured.py); `auto`: where that is possible.
        compile: compile the backbone for training with torch.compile, once for all lengths and batch sizes; or a mode
            of torch.compile, such as `reduce-overhead` (a CUDA graph for each shape). Lengths are then multiples of 8.
        objectives: the losses of single data sets by the names of the sets; the others have `objective`.

    Attributes:
        encoders: the trained encoders; the first is validated, tested and saved.
        losses: the objectives and the auxiliary losses by their config paths.
        step: the last training step, for callbacks.
        stop_asked: whether a signal asked this process to stop.
        largest_norm: the largest norm of a gradient so far in this process; negative before the first step.
        stops: whether all ranks know that a signal asked one of them to stop.
        not_in_every_loss: the parameters that some data sets depend on, but not all.
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        objective: Loss,
        optimizer: MakeOptimizer,
        scheduler: MakeSchedule | None = None,
        auxiliary: Mapping[str, Loss] | None = None,
        positive_encoder: SentenceEncoder | None = None,
        shared_dropout_mask: bool = False,
        queue: "MomentumQueue | None" = None,
        chunk_size: PositiveInt | None = None,
        gradient_checkpointing: bool = False,
        freeze_layers: NonNegativeInt | None = None,
        compile: bool | CompileMode = False,
        half_weights: bool = False,
        cuda_graph: bool | Literal["auto"] = False,
        objectives: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(encoder)
        if positive_encoder and (queue or shared_dropout_mask):
            raise UserError("encoders=two does not work with queue and module.shared_dropout_mask: set encoders=one")
        auxiliary, objectives = auxiliary or {}, objectives or {}
        self.losses = _checked_losses(objective, objectives, auxiliary)
        if queue and not any(loss.contrasts for loss in (objective, *objectives.values())):
            raise UserError("queue: the objective has no negatives (its class has no contrasts = True): set queue=null")
        self.positive_encoder = positive_encoder
        self.objective = objective
        self.objectives = nn.ModuleList(objectives.values())  # names of data sets may have dots
        self.auxiliary = nn.ModuleDict({name: loss for name, loss in auxiliary.items() if loss.weight})
        self.queue = queue
        self.optimizer, self.scheduler = optimizer, scheduler
        self.chunk_size, self.shared_dropout_mask, self.compiled = chunk_size, shared_dropout_mask, compile
        self.cuda_graph, self.half_weights = cuda_graph, half_weights
        self.captured: CapturedSteps | None = None
        self.encoders = [encoder, positive_encoder] if positive_encoder else [encoder]
        for trained in self.encoders:
            prepare_backbone(trained, gradient_checkpointing, freeze_layers)
        for name, loss in self.losses.items():
            with prefixed(name):
                loss.attach(encoder)
        if queue:
            queue.attach(encoder)
        # DDP would broadcast these buffers in every step. Those that are not saved, such as position ids, never change.
        equal = dict(self.named_buffers()).keys() - self.state_dict().keys() | {"queue.rows"}
        ignore_in_ddp(self, equal)
        self.step: TrainingStep | None = None
        self.stop_asked = self.stops = False
        self._unread: TrainingStep | None = None
        self.largest_norm = -1.0
        self.not_in_every_loss: list[nn.Parameter] = []
        self._unused: list[nn.Parameter] = []
        self._prepared: Mapping[str, RowKind] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has: no step, whose tensors belong to a graph of autograd, and no rows."""
        return super().__getstate__() | {"step": None, "_unread": None, "captured": None, "_prepared": None}

    def prepare(self, rows: Mapping[str, RowKind] | None = None) -> list[str]:
        """Check the rows, freeze the parameters that no loss depends on, and compile the backbone if asked to.

        `rows` are the kinds of the rows of each data set, by its name; None for one set of pairs. It is a UserError if
        a loss is not defined for them. Return the names of the data sets whose embeddings a loss reads.
        """
        rows = rows or {"": RowKind()}
        for dataset, kind in rows.items():
            used = {self.objective_of(dataset), *self.auxiliary.values()}
            for name, loss in self.losses.items():
                if loss in used:
                    with prefixed_by_dataset(dataset), prefixed(name):
                        loss.check_rows(kind)
        for name in self.losses:
            group, _, dataset = name.partition(".")
            if group == "objectives" and dataset not in rows:
                raise UserError(f"{name}: data.sets has no {dataset}{did_you_mean(dataset, rows)}")
            if getattr(self.losses[name], "similarity", "") == "dot" and not self.encoder.normalize:
                log.warning("%s.similarity=dot: validation and search take the cosine", name)
        # without weights, the first rank finds out (see speed/fsdp.py)
        examples = [
            self.batch_of(example_batch(self.encoder, kind) | {"dataset": name, "rows": np.zeros(2, dtype=np.int64)})
            for name, kind in rows.items()
            if self.encoder.device.type != "meta"
        ]
        for parameter in self._unused:  # other rows may use it
            parameter.requires_grad_()
        trainable = [parameter for parameter in self.parameters() if parameter.requires_grad]
        if examples:
            self.not_in_every_loss = freeze_unused(self, [partial(self.loss, batch) for batch in examples])
        self._unused = [parameter for parameter in trainable if not parameter.requires_grad]
        if self.compiled and self._prepared is None:
            torch.compiler.reset()  # the limit of compiled graphs counts those of earlier jobs of a sweep, too
            compile_backbone = optional("speed.compile.compile_backbone")
            for encoder in self.encoders:
                compile_backbone(encoder, self.compiled, in_chunks=self.chunk_size is not None)
        self._prepared = rows
        return [batch.dataset or "" for batch in examples if batch.embedded]

    def setup(self, stage: str) -> None:
        """Prepare for the rows of the datamodule, unless that is done for them, and for the steps."""
        super().setup(stage)
        if stage != "fit":
            return
        rows = self.sentence_data.rows if self.sentence_data else {}
        if self._prepared is None or (rows and rows is not self._prepared):
            embedded = self.prepare(rows)
            if not self.positive_encoder:
                try:
                    check_views_differ(self.encoder, [rows[name] for name in embedded if name in rows])
                except UserError as error:  # without dropout on purpose, or a model that has none
                    log.warning(error)
        if self.half_weights:
            optional("speed.half_weights.use_half_weights")(self, self.trainer)
        if self.cuda_graph:
            self.captured = optional("speed.captured.captured_steps")(self, self.trainer)

    def batch_of(self, rows: Mapping[str, Any], progress: float | Tensor = 1.0, **options: Any) -> EmbeddedBatch:
        """Return rows as the losses take them: embedded when a loss asks for it.

        Args:
            rows: tensors [batch, views, tokens]; `labels` [batch] if the data has labels; `roles` unless
                they are anchor, positive, then hard negatives; `dataset`, its name, if there are several; `rows`, their
                positions in the file, and `counts`, the number of rows of each device, if they are known; `copies`
                (see EmbeddedBatch).
            progress: see EmbeddedBatch.
            options: more arguments of EmbeddedBatch.
        """
        inputs = dict(rows)
        given = {name: inputs.pop(name, None) for name in ("labels", "dataset", "rows", "counts", "copies")}
        chunk_size: float | None = self.chunk_size
        if self.sharded and self.chunk_size:  # all devices must run the same number of chunks
            count = len(inputs["input_ids"])
            counts = given["counts"] or split_batch(count, self.device).rows
            chunk_size = count / math.ceil(min(counts) / self.chunk_size)
        roles = inputs.pop("roles", None) or default_roles(inputs["input_ids"].shape[1])
        return EmbeddedBatch(
            self.encoder,
            inputs,
            tuple(roles),
            positive_encoder=self.positive_encoder,
            chunk_size=chunk_size,
            shared_dropout=self.shared_dropout_mask,
            progress=progress,
            **given,
            **options,
        )

    def objective_of(self, dataset: str | None) -> Loss:
        """Return the objective of a data set."""
        return self.losses.get(f"objectives.{dataset}", self.objective)

    def loss(self, batch: EmbeddedBatch) -> Tensor:
        """Return the objective of this device's rows plus the auxiliary losses, each times its weight.

        The mean over devices is the loss of the whole batch. A subclass must not need a trainer here: `training_step`
        has one.
        """
        objective = self.objective_of(batch.dataset)
        loss: Tensor = objective.weight * objective(batch)
        for name, term in self.auxiliary.items():
            value = term(batch)
            batch.log(name, value)
            loss = loss + term.weight * value
        return loss

    def batch_and_loss(
        self, rows: Mapping[str, Any], progress: float | Tensor, **options: Any
    ) -> tuple[EmbeddedBatch, Tensor]:
        """Return a batch and its loss. The batch then enters the queue. The arguments are those of `batch_of`."""
        queue = self.queue.negatives() if self.queue else None
        batch = self.batch_of(rows, progress, queue=queue, **options)
        loss = self.loss(batch)
        if self.queue:
            self.queue.update(self.encoder, batch.inputs, self.chunk_size, batch.split)
        return batch, loss

    def training_step(self, rows: Batch, batch_idx: int) -> Tensor:
        """Return the loss of a training batch; without a gradient if a CUDA graph has made the whole step."""
        progress = self.global_step / self.trainer.estimated_stepping_batches
        drawn = self.captured.draw() if self.captured else {}
        if self.captured and (step := self.captured.step(rows, progress, drawn)):
            self._finish(step)
            return step.loss
        batch, loss = self.batch_and_loss(rows, progress, drawn=drawn)
        # DDP waits for a gradient of every parameter, and this batch may not use the loss of another data set.
        if self.not_in_every_loss and not self.sharded:
            loss = sum((0 * parameter.sum() for parameter in self.not_in_every_loss), start=loss)
        mean, asked = loss.detach(), None
        if self.trainer.world_size > 1:
            mean, asked = mean_over_ranks(torch.stack([mean, torch.full_like(mean, self.stop_asked)]))
        lr = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.step = TrainingStep(self.global_step + 1, batch, mean, asked, lr)
        return loss

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients, or raise UserError if their norm or the loss is not finite.

        In 16-mixed, the norm may be infinite: the gradient scaler skips such steps and lowers its scale.
        """
        assert self.step
        self.step.norm = self.clip(optimizer, gradient_clip_val, gradient_clip_algorithm)
        self._finish(self.step)

    def clip(self, optimizer: torch.optim.Optimizer, limit: float | None, algorithm: str | None) -> Tensor:
        """Clip the gradients by their norm, or by `value`; return the norm before, a scalar.

        Lightning cannot clip the gradients for a fused optimizer, not even in bf16, where no gradient is scaled.
        """
        for parameter in self.not_in_every_loss:
            if parameter.grad is None:  # in training_step, a sharded one is not whole
                parameter.grad = torch.zeros_like(parameter)
        trained = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in trained])
        norm = norm.full_tensor() if self.sharded else norm  # type: ignore[attr-defined]
        if limit and algorithm == "value":
            torch.nn.utils.clip_grad_value_(trained, limit)
        elif limit:
            torch.nn.utils.clip_grads_with_norm_(trained, limit, norm)
        return norm

    def _finish(self, step: TrainingStep) -> None:
        """Check a step that has been computed, or the one before, if the host can go on."""
        self.step = step
        step.send()
        self.check_last_step()
        self._unread = step
        if step.sent is None:
            self.check_last_step()

    def backward(self, loss: Tensor) -> None:  # type: ignore[override]
        if loss.requires_grad:  # otherwise a CUDA graph has computed the gradients
            super().backward(loss)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Compute and make a step, unless a CUDA graph has made it."""
        if self.captured:
            loss = optimizer_closure()
            if self.step and self.step.norm is not None:  # the norm of an eager step is not known yet
                return
            optimizer_closure = partial(torch.as_tensor, loss)
        with self.captured.tensor_rates() if self.captured else nullcontext():
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)

    def check_last_step(self, *_: Any) -> None:
        """Read whether a step was asked to stop; raise UserError if its loss or the norm of its gradient is not finite.

        A GPU's step is read in the one after, and before a validation or a checkpoint, so that the GPU need not wait
        for the host: its next step is already in its queue.
        """
        step, self._unread = self._unread, None
        if step is None:
            return
        loss, norm, *asked = step.read()
        self.stops = any(asked)
        self.largest_norm = max(self.largest_norm, norm)
        if not math.isfinite(loss) or not (math.isfinite(norm) or self.trainer.precision == "16-mixed"):
            raise UserError(
                f"step {step.number}: the loss is {loss:.3g} and its gradient's norm {norm:.3g}, in "
                f"{self._name_rows(step.batch)}: lower optimizer.lr, or check these rows"
            )

    on_validation_start = check_last_step

    def on_train_end(self) -> None:
        self.check_last_step()
        self.captured = None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.check_last_step()  # weights that are not finite are not saved
        super().on_save_checkpoint(checkpoint)

    def on_train_batch_end(self, *_: Any) -> None:
        """Log the step after the callbacks, which may add curves and end the training."""
        if self.step and logs_step(self.trainer, self.step):
            self.step.log(self.trainer)

    def _name_rows(self, batch: EmbeddedBatch) -> str:
        """Return the numbers of the rows of all devices' batch, for a message."""
        data = self.sentence_data
        if batch.rows is None or data is None:
            return "unknown rows"
        rows = batch.gather(torch.from_numpy(batch.rows).to(self.device)) + 1
        return f"rows {', '.join(map(str, rows.cpu().tolist()))} of {data.sets[batch.dataset or ''].train}"

    def configure_optimizers(self) -> OptimizerLRScheduler:
        scaled = self.trainer.precision == "16-mixed"
        with reraise_as("optimizer"):
            optimizer = build_optimizer(self.optimizer, list(self.parameters()), gradient_scaler=scaled)
        with reraise_as("scheduler"):
            schedule = build_schedule(self.scheduler, optimizer, self.trainer.estimated_stepping_batches)
        if schedule is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        if (data := self.sentence_data) is None:  # a sanity check of loaders
            return
        for dataset, rows in data.rows.items():
            if len(rows.held_out):
                objective = self.objective_of(dataset)  # without its weight
                loss = self.held_out_loss(objective, data.held_out_batches(dataset))
                for name, value in objective.held_out_metrics(loss).items():
                    self.log(logged(f"{dataset}/{name}" if dataset else name), value, sync_dist=True)

    def held_out_loss(self, objective: Loss, batches: Iterable[Mapping[str, Any]]) -> Tensor:
        """Return the mean of a loss over this rank's part of batches and over ranks, weighted by rows.

        The random state is the same at each call, so that the same tokens are masked.
        """
        total, rows = torch.zeros(2, device=self.device)
        devices = [] if self.device.type == "cpu" else [self.device]
        forked = torch.random.fork_rng(devices, device_type=self.device.type)
        with forked, self.trainer.precision_plugin.val_step_context():
            torch.manual_seed(rank())
            for batch in map(self.trainer.strategy.batch_to_device, map(dict, batches)):
                count = sum(batch["counts"])
                total += count * objective(self.batch_of(batch))
                rows += count
        return mean_over_ranks(total / rows)


def _checked_losses(objective: Loss, objectives: Mapping[str, Loss], auxiliary: Mapping[str, Loss]) -> dict[str, Loss]:
    """Return the objectives, and the auxiliary losses with a weight, by their config paths."""
    for name, loss in objectives.items():
        if not isinstance(loss, Loss):
            raise UserError(f"objectives.{name}={loss}: choose a loss by +objective@objectives.{name}=CHOICE")
    named = {"objective": objective} | {f"objectives.{name}": loss for name, loss in objectives.items()}
    terms = {f"auxiliary.{name}": loss for name, loss in auxiliary.items()}
    for name, loss in (named | terms).items():
        if not isinstance(loss, Loss):
            raise UserError(f"{name}: {type(loss).__name__} is no subclass of simcse_pl.Loss")
    return named | {name: loss for name, loss in terms.items() if loss.weight}
