"""SimCSEModule: the loss of SimCSE and of everything that is trained with it, as a LightningModule."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from simcse_pl.cpu.speed import Speed
from simcse_pl.data.datamodule import naming
from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.losses.duplicates import duplicate_negatives
from simcse_pl.losses.embedded_batch import EmbeddedBatch, select_views
from simcse_pl.losses.frozen_encoder import FrozenEncoder
from simcse_pl.losses.momentum_queue import MomentumQueue
from simcse_pl.losses.objectives import Objective, mean_similarities
from simcse_pl.models.backbone import recompute_layers
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role, RowKind, default_roles
from simcse_pl.models.tokenization import Batch
from simcse_pl.training.encoder_module import EncoderModule, views_of
from simcse_pl.training.freezing import example_batch, freeze_first_layers, freeze_unused
from simcse_pl.training.held_out import held_out_loss
from simcse_pl.training.non_finite import NonFiniteSteps
from simcse_pl.training.optimizer import MakeOptimizer, MakeSchedule
from simcse_pl.utils.distributed import mean_over_ranks
from simcse_pl.utils.errors import UserError, did_you_mean

_MODES = "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"  # of torch.compile


class SimCSEModule(EncoderModule):
    """Train an encoder on batches of views.

    It logs train/loss, train/lr, train/grad_norm, train/positive_similarity,
    train/negative_similarity, train/duplicates (the share of rows that have their own sentence among
    this device's negatives), train/skipped_steps, train/masked_negatives and the auxiliary losses by
    name; with several data sets, also train/loss/NAME. If rows are held out, it logs their mean loss as
    val/loss, or val/NAME/loss. A subclass can replace `loss`.

    Args:
        encoder: the encoder to train.
        objective: the loss of embeddings [batch, views, dim].
        objectives: those of single data sets, by the name of the set.
        optimizer, scheduler, layer_decay, no_weight_decay, speed: see EncoderModule.
        auxiliary: losses added to the objective with their weights. Weight 0 disables a loss.
        positive_encoder: a second encoder, for all views but the first (the two independent encoders
            of Table 2). Only `encoder` is measured and saved.
        shared_dropout_mask: whether all views of a row use the same dropout mask ("fixed 0.1" in
            Table 3).
        queue: embeddings of past batches as further negatives.
        chunk_size: rows of a device's batch encoded at once (see gradient_cache); None for all.
        gradient_checkpointing: recompute the activations inside layers in the backward pass.
        freeze_layers: freeze the word embeddings and this many layers; None to train all. Parameters
            that no loss depends on are always frozen.
        compile: compile the backbone with torch.compile, once for all lengths and batch sizes; or a mode of
            torch.compile, such as `reduce-overhead` (CUDA graphs), which compiles each shape. Lengths are then
            multiples of 8.
        on_non_finite: `error` to stop at a loss or gradient that is not finite, `skip` to skip the step.
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        objective: Objective,
        optimizer: MakeOptimizer,
        scheduler: MakeSchedule | None = None,
        auxiliary: Sequence[AuxiliaryLoss] = (),
        positive_encoder: SentenceEncoder | None = None,
        shared_dropout_mask: bool = False,
        queue: MomentumQueue | None = None,
        chunk_size: int | None = None,
        gradient_checkpointing: bool = False,
        freeze_layers: int | None = None,
        compile: bool | str = False,
        on_non_finite: str = "error",
        layer_decay: float | None = None,
        no_weight_decay: Sequence[str] = (),
        speed: Speed | None = None,
        objectives: Mapping[str, Objective] | None = None,
    ) -> None:
        super().__init__(encoder, optimizer, scheduler, layer_decay, no_weight_decay, speed)
        self.non_finite = NonFiniteSteps(on_non_finite)
        if chunk_size is not None and chunk_size < 1:
            raise UserError(f"module.chunk_size={chunk_size}: it must be at least 1")
        if shared_dropout_mask and positive_encoder:
            raise UserError("module.shared_dropout_mask=true: two encoders cannot share a mask; set encoders=one")
        if queue and positive_encoder:
            raise UserError("queue: it stores embeddings of the first encoder, not of the positives'; set encoders=one")
        every = [objective, *(objectives or {}).values()]
        if queue and not any(one.contrasts for one in every):
            raise UserError("queue: the objective has no negatives, so a queue has no effect: set queue=null")
        if queue and any(getattr(part, "guide", None) for one in every for part in one.modules()):
            raise UserError("objective.guide: the queue does not store the guide's embeddings: set queue=null")
        self.positive_encoder = positive_encoder
        if any(trained.postprocess for trained in self.encoders()):
            raise UserError("this encoder has a post-processing, which training would invalidate: give one without it")
        for trained in self.encoders():
            if gradient_checkpointing:
                recompute_layers(trained.backbone)
            if freeze_layers is not None:
                freeze_first_layers(trained, freeze_layers)
            in_chunks = trained.backbone.modules()  # the head is applied to all chunks at once
            if chunk_size and any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in in_chunks):
                raise UserError("module.chunk_size: batch normalization needs the whole batch at once; set it to null")
            trained.train()  # Lightning trains each module in the mode that it is in
        self.objective = objective
        self.objectives = nn.ModuleList((objectives or {}).values())  # a ModuleDict rejects some names
        self._datasets = list(objectives or {})
        self._curves: dict[str, Tensor] = {}
        self._not_in_every_loss: list[nn.Parameter] = []
        self.auxiliary = nn.ModuleList(loss for loss in auxiliary if loss.weight)
        names = [str(loss.name) for loss in self.auxiliary]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(f"auxiliary: two losses have the name {twice[0]}: rename one")
        for part in [*every, *self.auxiliary]:
            part.attach(encoder)
            for user in part.modules():
                if isinstance(user, Objective | AuxiliaryLoss | FrozenEncoder):
                    user.chunk_size = chunk_size
        self.shared_dropout_mask = shared_dropout_mask
        self.chunk_size = chunk_size
        self.queue = queue
        if queue:
            queue.attach(encoder)
        self.compiled = compile
        if compile:
            if compile is not True and compile not in _MODES:
                near = did_you_mean(compile, _MODES)
                raise UserError(f"module.compile={compile}: choose true, false or one of {', '.join(_MODES)}{near}")
            self.speed = Speed(tokens_per_pass=math.inf, fast_dropout=False)

    def encoders(self) -> list[SentenceEncoder]:
        """Return the encoder and, if there is one, that of the positives."""
        return [self.encoder, self.positive_encoder] if self.positive_encoder else [self.encoder]

    def objective_of(self, dataset: str | None) -> Objective:
        """Return the objective of a data set."""
        own = self.objectives[self._datasets.index(dataset)] if dataset in self._datasets else self.objective
        assert isinstance(own, Objective)
        return own

    def prepare(self, rows: Mapping[str, RowKind] | None = None) -> None:
        """Check the rows, freeze the parameters that no loss depends on, and compile the backbone if asked to.

        Args:
            rows: what the rows of each data set have; None for one set of pairs.

        Raises:
            UserError: if an objective is not defined for the rows of its data set.
        """
        rows = rows or {"": RowKind()}
        for dataset, kind in rows.items():
            with naming(dataset):
                for part in (self.objective_of(dataset), *self.auxiliary):
                    part.check_rows(kind.roles, kind.labels)
        examples = [example_batch(self.encoder, kind) | {"dataset": dataset} for dataset, kind in rows.items()]
        freeze_unused(nn.ModuleList([*self.encoders(), self.auxiliary]), partial(self._example_loss, examples))
        backbones = [encoder.backbone for encoder in self.encoders()]
        of_backbones = {id(parameter) for backbone in backbones for parameter in backbone.parameters()}
        self._not_in_every_loss = [p for p in self.parameters() if p.requires_grad and id(p) not in of_backbones]
        for encoder in self.encoders() if self.compiled else []:
            encoder.compile_backbone(self.compiled)
        self._prepared = True

    def _example_loss(self, batches: Sequence[Mapping[str, Any]]) -> Tensor:
        """Return a scalar that depends on the same parameters as the loss of batches."""
        total = torch.zeros(())
        for batch in batches:
            objective, embedded = self.objective_of(batch["dataset"]), self.embed(batch)
            total = total + (embedded.embeddings.sum() if objective.reads_embeddings else objective(embedded))
            total = sum((term(self.encoder, embedded) for term in self.auxiliary), start=total)
        return total

    def embed(self, batch: Mapping[str, Any]) -> EmbeddedBatch:
        """Embed a training batch. The embeddings have 0 dimensions if no loss needs them.

        Args:
            batch: tensors [batch, views, tokens]; `labels` [batch] if the data has labels; `roles` unless
                they are anchor, positive, then hard negatives; `dataset`, its name, if there are several.
        """
        inputs = views_of(batch)
        roles = batch.get("roles") or default_roles(inputs["input_ids"].shape[1])
        if not self.needs_embeddings(batch.get("dataset")):
            empty = torch.empty(*inputs["input_ids"].shape[:2], 0, device=self.device)
            return EmbeddedBatch(empty, roles, inputs, labels=batch.get("labels"))
        pooled = self._pool(inputs)
        embeddings = self._project(pooled)
        queue = self.queue.negatives() if self.queue else None
        return EmbeddedBatch(embeddings, roles, inputs, pooled, batch.get("labels"), queue)

    def needs_embeddings(self, dataset: str | None) -> bool:
        """Return whether a loss of a data set needs embeddings."""
        return self.objective_of(dataset).reads_embeddings or bool(self.auxiliary)

    def _pool(self, batch: Batch) -> Tensor:
        if not self.positive_encoder:
            return self.encoder.pool_views(batch, self.chunk_size, self.shared_dropout_mask)
        first, others = ({name: x[:, views] for name, x in batch.items()} for views in (slice(1), slice(1, None)))
        anchors = self.encoder.pool_views(first, self.chunk_size)
        return torch.cat([anchors, self.positive_encoder.pool_views(others, self.chunk_size)], dim=1)

    def _project(self, pooled: Tensor) -> Tensor:
        """Apply the head of each view's encoder to pooled vectors [batch, views, hidden]."""
        if not self.positive_encoder or all(one.projection is None for one in self.encoders()):
            return self.encoder.project(pooled)
        return torch.cat([self.encoder.project(pooled[:, :1]), self.positive_encoder.project(pooled[:, 1:])], dim=1)

    def save(self, folder: Path) -> None:
        """Save the trained encoder, and what the objective adds to it."""
        self.objective.save(self.encoder, folder)

    def loss(self, batch: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the objective of this device's rows plus the auxiliary losses, and the curves to log by name.

        The batch is that of `embed`. The mean of the loss over devices is the loss of the whole batch. A subclass must
        not need a trainer here: `training_step` has one.
        """
        embedded = self.embed(batch)
        dataset = batch.get("dataset")
        objective = self.objective_of(dataset)
        loss: Tensor = objective(embedded)
        curves = {}
        if self.needs_embeddings(dataset):
            curves = dict(zip(("positive_similarity", "negative_similarity"), mean_similarities(embedded), strict=True))
        if objective.contrasts:
            own, template_of = embedded.views(Role.ANCHOR, Role.POSITIVE), self.encoder.templates.text_of
            shared = {template_of(view) for view in own}  # in another template, the same sentence is another text
            negatives = [view for view in embedded.views(Role.NEGATIVE) if template_of(view) in shared]
            hashes, count = select_views(embedded.sentence_hashes, [*own, *negatives]), len(own) - 1
            curves["duplicates"] = duplicate_negatives(hashes, hashes, positives=count).any(dim=1).float().mean()
        curves |= objective.curves
        for term in self.auxiliary:
            assert isinstance(term, AuxiliaryLoss)
            curves[term.name] = term(self.encoder, embedded)
            loss = loss + term.weight * curves[term.name]
        # DDP waits for a gradient of every parameter, and this batch may not use an objective, a term or the head.
        loss = sum((0 * parameter.sum() for parameter in self._not_in_every_loss), start=loss)
        if dataset is not None:
            curves[f"loss/{dataset}"] = loss
        return loss, curves

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss of a training batch; log the means over devices."""
        self._set_progress(self.global_step / self.trainer.estimated_stepping_batches)
        loss, curves = self.loss(batch)
        self._loss, self._views = mean_over_ranks(loss.detach()), views_of(batch)
        # a rank with one row has no negatives, so their similarity is nan there
        values = [value.detach() for value in curves.values()]
        means = mean_over_ranks(torch.stack(values), ignore_nan=True).unbind() if values else ()
        # Lightning would log the last value of another data set's curve again
        self._curves = dict.fromkeys(self._curves, self._loss * torch.nan) | dict(zip(curves, means, strict=True))
        self.log("train/loss", self._loss)
        self.log_dict({f"train/{name}": mean for name, mean in self._curves.items()})
        lr = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.log("train/lr", torch.tensor(lr))  # Lightning would copy a float to the GPU, and wait for it
        return loss

    def _set_progress(self, progress: float) -> None:
        for part in self.modules():
            if isinstance(part, Objective):
                part.progress = progress

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the validation sets, and the loss of the held-out rows."""
        super().on_validation_epoch_end()
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        for dataset, own in data.sets.items():
            if len(own.held_out):
                loss = held_out_loss(self.trainer, self._held_out_loss, data.held_out_batches(dataset))
                for name, value in self.objective_of(dataset).held_out_metrics(loss).items():
                    self.log(f"val/{dataset}/{name}" if dataset else f"val/{name}", value, sync_dist=True)

    def _held_out_loss(self, batch: Mapping[str, Any]) -> Tensor:
        self._set_progress(1.0)  # so that the losses of all validations are comparable
        loss: Tensor = self.objective_of(batch.get("dataset"))(replace(self.embed(batch), queue=None))
        return loss

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Log the gradient norm, check that it and the loss are finite, update the queue, and clip.

        The check is the only synchronization with a GPU in a step. In 16-mixed, the norm may be
        infinite: the gradient scaler skips such steps and lowers its scale. Lightning cannot clip the
        gradients for a fused optimizer, not even in bf16, where no gradient is scaled.
        """
        trained = [p for p in self.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])
        self.log("train/grad_norm", norm)
        if self.non_finite.action == "skip":
            self.log("train/skipped_steps", torch.tensor(float(self.non_finite.skipped)))
        scaled = self.trainer.precision == "16-mixed"
        if not (self._loss.isfinite() & (norm.isfinite() | scaled)):
            self.non_finite.handle(self.trainer, float(self._loss), float(norm))
            return
        if self.queue:
            with self.trainer.precision_plugin.train_step_context():
                self.queue.update(self.encoder, self._views, self.chunk_size)
        if gradient_clip_val and gradient_clip_algorithm == "value":
            torch.nn.utils.clip_grad_value_(trained, gradient_clip_val)
        elif gradient_clip_val:
            torch.nn.utils.clip_grads_with_norm_(trained, gradient_clip_val, norm)
