"""SimCSEModule: the encoder, the objective, the metrics and the optimizer as a LightningModule."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from transformers import AttentionMaskInterface

from simcse_pl.data.senteval.sts_sets import POSITIVE_SCORE_THRESHOLD
from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.losses.duplicates import duplicate_negatives, hash_token_ids
from simcse_pl.losses.gradient_cache import apply_in_chunks
from simcse_pl.losses.momentum_queue import MomentumQueue
from simcse_pl.losses.objectives import Objective, mean_similarities
from simcse_pl.models.backbone import recompute_layers
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.lightning_checkpoint import CHECKPOINT_KEY, describe
from simcse_pl.models.tokenization import Batch
from simcse_pl.training.attention_masks import sdpa_mask_without_synchronization
from simcse_pl.training.fast_dropout import use_fast_dropout
from simcse_pl.training.freezing import example_batch, freeze_first_layers, freeze_unused
from simcse_pl.training.non_finite import NonFiniteSteps
from simcse_pl.training.optimizer import LinearAdamW
from simcse_pl.training.shared_dropout import embed_with_shared_dropout_mask
from simcse_pl.training.validation_metrics import Alignment, SpearmanCorrelation, Uniformity
from simcse_pl.utils.distributed import mean_over_ranks
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import unit_vectors


class SimCSEModule(LightningModule):
    """Train an encoder on batches of views, and validate and test it on scored pairs.

    In training it logs train/loss, train/lr, train/grad_norm, train/positive_similarity,
    train/negative_similarity, train/duplicates (the share of rows that have their own sentence among
    this device's negatives), train/skipped_steps, train/masked_negatives and the auxiliary losses by
    name. Over all validation or test pairs it logs {val,test}/spearman, /alignment and /uniformity.

    Args:
        encoder: the encoder to train.
        objective: the loss of embeddings [batch, views, dim].
        optimizer: the optimizer's settings.
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
        length_bucketing: on a CPU, encode sequences of similar length together (see `length_groups`).
        compile: compile the backbone with torch.compile, once for all lengths and batch sizes.
        on_non_finite: `error` to stop at a loss or gradient that is not finite, `skip` to skip the step.
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        objective: Objective,
        optimizer: LinearAdamW,
        auxiliary: Sequence[AuxiliaryLoss] = (),
        positive_encoder: SentenceEncoder | None = None,
        shared_dropout_mask: bool = False,
        queue: MomentumQueue | None = None,
        chunk_size: int | None = None,
        gradient_checkpointing: bool = False,
        freeze_layers: int | None = None,
        length_bucketing: bool = True,
        compile: bool = False,
        on_non_finite: str = "error",
    ) -> None:
        super().__init__()
        self.non_finite = NonFiniteSteps(on_non_finite)
        guide: SentenceEncoder | None = getattr(objective, "guide", None)
        encoders = [encoder, positive_encoder] if positive_encoder else [encoder]
        if chunk_size is not None and chunk_size < 1:
            raise UserError(f"chunk_size={chunk_size}: it must be at least 1")
        if shared_dropout_mask and positive_encoder:
            raise UserError("shared_dropout_mask=true: two encoders cannot share a mask; set encoders=one")
        if queue and positive_encoder:
            raise UserError("queue: it stores embeddings of the first encoder, not of the positives'; set encoders=one")
        if queue and not objective.contrasts:
            raise UserError("queue: the objective has no negatives, so a queue has no effect: set queue=null")
        if queue and guide:
            raise UserError("objective.guide: the queue does not store the guide's embeddings: set queue=null")
        if guide and guide.tokenizer.get_vocab() != encoder.tokenizer.get_vocab():
            raise UserError("objective.guide: its vocabulary must be that of the trained encoder")
        if any(trained.postprocess for trained in encoders):
            raise UserError("this encoder has a post-processing, which was fitted to its present weights")
        AttentionMaskInterface.register("sdpa", sdpa_mask_without_synchronization)
        for trained in encoders:
            if gradient_checkpointing:
                recompute_layers(trained.backbone)
            if freeze_layers is not None:
                freeze_first_layers(trained, freeze_layers)
            trained.train()  # Lightning trains each module in the mode that it is in
        self.encoder = encoder
        self.positive_encoder = positive_encoder
        self.objective = objective
        objective.attach(encoder.dim)
        losses = [loss for loss in auxiliary if loss.weight]
        for loss in losses:
            loss.attach(encoder)
            loss.chunk_size, loss.length_bucketing = chunk_size, length_bucketing
        self.auxiliary = nn.ModuleList(losses)
        self.shared_dropout_mask = shared_dropout_mask
        self.chunk_size = chunk_size
        self.length_bucketing = length_bucketing
        freeze_unused(nn.ModuleList([*encoders, self.auxiliary]), self._example_loss)
        self.queue = queue
        if queue:
            queue.attach(encoder)
        for trained in encoders:
            if compile:
                trained.backbone.compile(dynamic=True)
            else:
                use_fast_dropout(trained.backbone)
        self.optimizer_settings = optimizer
        self.spearman = SpearmanCorrelation()
        self.alignment = Alignment()
        self.uniformity = Uniformity()

    def _example_loss(self) -> Tensor:
        """Return a scalar that depends on the same parameters as the loss."""
        batch = example_batch(self.encoder)
        return sum((term(self.encoder, batch) for term in self.auxiliary), start=self.embed(batch).sum())

    def embed(self, batch: Batch) -> Tensor:
        """Embed a training batch: tensors [batch, views, tokens] in, [batch, views, dim] out."""
        return apply_in_chunks(self._embed_at_once, batch, self.chunk_size)

    def _embed_at_once(self, batch: Batch) -> Tensor:
        if self.shared_dropout_mask:
            return embed_with_shared_dropout_mask(self.encoder, batch)
        if not self.positive_encoder:
            return embed_views(self.encoder, batch, self.length_bucketing)
        first, others = ({name: x[:, views] for name, x in batch.items()} for views in (slice(1), slice(1, None)))
        anchors = embed_views(self.encoder, first, self.length_bucketing)
        return torch.cat([anchors, embed_views(self.positive_encoder, others, self.length_bucketing)], dim=1)

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the objective of this device's rows plus the auxiliary losses, and the curves to log by name.

        The batch has tensors [batch, views, tokens], and `labels` [batch] if the data has labels. The mean
        of the loss over devices is the loss of the whole batch.
        """
        labels = batch.get("labels")
        batch = _views_of(batch)
        embeddings = self.embed(batch)
        keys = hash_token_ids(batch)
        guide = getattr(self.objective, "guide", None)
        guided = {} if guide is None else {"guides": self._embed_by_guide(guide, batch)}
        queue = self.queue.negatives() if self.queue else None
        loss: Tensor = self.objective(embeddings, labels, queue, keys, **guided)
        curves = dict(zip(("positive_similarity", "negative_similarity"), mean_similarities(embeddings), strict=True))
        if self.objective.contrasts:
            curves["duplicates"] = duplicate_negatives(keys, keys).any(dim=1).float().mean()
        curves |= self.objective.curves
        for term in self.auxiliary:
            assert isinstance(term, AuxiliaryLoss)
            curves[term.name] = term(self.encoder, batch)
            loss = loss + term.weight * curves[term.name]
        return loss, curves

    @torch.no_grad()
    def _embed_by_guide(self, guide: SentenceEncoder, batch: Batch) -> Tensor:
        inputs = {name: batch[name] for name in guide.tokenizer.model_input_names if name in batch}
        guide.to(batch["input_ids"].device)  # Lightning moves submodules only
        embed = partial(embed_views, guide, length_bucketing=self.length_bucketing)
        return apply_in_chunks(embed, inputs, self.chunk_size)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss of a training batch; log the means over devices."""
        loss, curves = self.loss(batch)
        self._loss, self._views = mean_over_ranks(loss.detach()), _views_of(batch)
        # a rank with one row has no negatives, so their similarity is nan there
        means = mean_over_ranks(torch.stack(list(curves.values())).detach(), ignore_nan=True).unbind()
        self.log("train/loss", self._loss)
        self.log_dict({f"train/{name}": mean for name, mean in zip(curves, means, strict=True)})
        lr = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.log("train/lr", torch.tensor(lr))  # Lightning would copy a float to the GPU, and wait for it
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

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add scored pairs to the metrics."""
        stage = "test" if self._trainer and self._trainer.testing else "val"
        scores = batch.pop("scores")
        embeddings = embed_views(self.encoder, batch, self.length_bucketing).float()
        if not embeddings.isfinite().all():
            raise UserError(f"step {self.global_step}: embeddings are no longer finite: lower optimizer.lr")
        first, second = embeddings.unbind(dim=1)
        self.spearman.update((unit_vectors(first) * unit_vectors(second)).sum(dim=-1), scores)
        positive = scores > POSITIVE_SCORE_THRESHOLD
        self.alignment.update(first[positive], second[positive])
        self.uniformity.update(torch.cat([first, second]))
        self.log(f"{stage}/spearman", self.spearman, prog_bar=True, batch_size=len(scores))
        self.log(f"{stage}/alignment", self.alignment, batch_size=len(scores))
        self.log(f"{stage}/uniformity", self.uniformity, batch_size=len(scores))

    test_step = validation_step

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the parts of the encoder that `SentenceEncoder.from_checkpoint` needs beside the weights."""
        encoder = self.encoder
        checkpoint[CHECKPOINT_KEY] = describe(encoder.backbone.config, encoder.tokenizer, encoder.settings)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return the optimizer of all weights and its schedule, advanced every step."""
        fused = self.trainer.precision != "16-mixed"  # a gradient scaler cannot clip for a fused optimizer
        optimizer, schedule = self.optimizer_settings.build(
            self.parameters(), int(self.trainer.estimated_stepping_batches), fused
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def embed_views(encoder: SentenceEncoder, batch: Batch, length_bucketing: bool = False) -> Tensor:
    """Embed all views of a batch: tensors [batch, views, tokens] in, [batch, views, dim] out.

    The views are encoded in groups of similar length with `length_bucketing`, or else in one padded pass.
    """
    rows, views = batch["input_ids"].shape[:2]
    sequences = {name: tensor.flatten(0, 1) for name, tensor in batch.items()}
    vectors: Tensor = encoder.forward_in_length_groups(sequences) if length_bucketing else encoder(sequences)
    return vectors.view(rows, views, -1)


def _views_of(batch: Batch) -> Batch:
    """Return a training batch without its labels."""
    return {name: tensor for name, tensor in batch.items() if name != "labels"}
