"""SimCSEModule: wires encoder, objective, metrics and optimizer together for Lightning."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from simcse_pl.data.senteval.sts_sets import POSITIVE_SCORE_THRESHOLD
from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.losses.duplicates import duplicate_negatives, hash_token_ids
from simcse_pl.losses.gradient_cache import in_chunks
from simcse_pl.losses.momentum_queue import MomentumQueue
from simcse_pl.losses.objectives import Objective, mean_similarities
from simcse_pl.models.backbone import recompute_layers
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.lightning_checkpoint import CHECKPOINT_KEY, describe
from simcse_pl.models.tokenization import Batch
from simcse_pl.training.attention_masks import build_masks_without_waiting
from simcse_pl.training.fast_dropout import use_fast_dropout
from simcse_pl.training.freezing import example_batch, freeze_first_layers, freeze_unused
from simcse_pl.training.non_finite import NonFiniteSteps
from simcse_pl.training.optimizer import LinearAdamW
from simcse_pl.training.shared_dropout import embed_with_shared_dropout_mask
from simcse_pl.training.validation_metrics import Alignment, SpearmanCorrelation, Uniformity
from simcse_pl.utils.distributed import mean_over_ranks
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import unit_vectors

_FIRST, _OTHERS = slice(0, 1), slice(1, None)


class SimCSEModule(LightningModule):
    """Trains an encoder on batches of views, and measures it on scored pairs.

    It logs train/loss, train/lr, train/positive_similarity, train/negative_similarity, train/duplicates (the share of
    rows that have their own sentence among this device's negatives), train/grad_norm, train/skipped_steps and the
    auxiliary terms by their names in training; {val,test}/spearman, /alignment and /uniformity over all validation
    or test pairs. Where the objective leaves out near negatives, train/masked_negatives is their share.

    Args:
        encoder: what is trained.
        objective: from embeddings [batch, views, dim], and the rows' labels where the data has them, to a scalar loss.
        optimizer: its settings.
        auxiliary: terms that are added to the objective, each with its weight; one of weight 0 is left out.
        positive_encoder: where given, encodes all views but the first, and `encoder` the first alone (Table 2's two
            independent encoders); only `encoder` is measured and saved.
        shared_dropout_mask: all views of a row get one and the same dropout mask (Table 3's `fixed 0.1`).
        queue: embeddings of the batches before, as further negatives.
        chunk_size: rows of a device's batch that are encoded at once (see gradient_cache); all where None.
        gradient_checkpointing: activations inside a layer are not kept, and computed again in backward.
        freeze_layers: freeze the word embeddings and this many layers from the first; all train where None. Parameters
            that neither the pooling nor an auxiliary term reads are always frozen.
        length_bucketing: on a CPU, encode sequences of similar length together, padded to the longest of their group
            (see `length_groups`). Vectors are the same. No effect if padding changes a backbone's vectors.
        compile: fuse the backbone's operations by torch.compile, once for all lengths and batch sizes.
        on_non_finite: `error` to stop at a loss or gradient that is not finite, or `skip` (see non_finite).

    Raises:
        UserError: an auxiliary term that does not fit the encoder, fixed dropout for two encoders, a queue for two
            encoders, for a guide or for an objective without negatives, a guide of another vocabulary, a chunk without
            rows, more frozen layers than can be, or an unknown on_non_finite.
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
        _check_options(objective, positive_encoder, shared_dropout_mask, queue, chunk_size)
        encoders = [encoder, positive_encoder] if positive_encoder else [encoder]
        for trained in encoders:
            _make_ready(trained, gradient_checkpointing, freeze_layers)
        self.encoder = encoder.train()  # Lightning trains each module in the mode that it finds it in
        self.positive_encoder = positive_encoder.train() if positive_encoder else None
        self.objective = objective
        _check_guide(self.guide, encoder, queue)
        objective.attach(encoder.dim)
        terms = [term for term in auxiliary if term.weight]
        for term in terms:
            term.attach(encoder)
            term.chunk_size, term.length_bucketing = chunk_size, length_bucketing
        self.auxiliary = nn.ModuleList(terms)
        self.shared_dropout_mask = shared_dropout_mask
        self.chunk_size = chunk_size
        self.length_bucketing = length_bucketing
        self._freeze_unused(encoders)
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

    def _freeze_unused(self, encoders: Sequence[SentenceEncoder]) -> None:
        """Freeze what neither the pooling nor an auxiliary term reads."""
        for encoder in encoders:
            encoder.backbone.eval()  # in training some architectures leave layers out at random
        batch = example_batch(self.encoder)
        with torch.random.fork_rng(devices=[]):
            loss = self.embed(batch).sum() + sum(term(self.encoder, batch) for term in self.auxiliary)
        freeze_unused(nn.ModuleList([*encoders, self.auxiliary]).parameters(), loss)
        for encoder in encoders:
            encoder.backbone.train()

    def embed(self, batch: Batch) -> Tensor:
        """The views of a training batch: tensors [batch, views, tokens] in, [batch, views, dim] out."""
        return in_chunks(self._embed_at_once, batch, self.chunk_size)

    def _embed_at_once(self, batch: Batch) -> Tensor:
        if self.positive_encoder:
            first, others = ({name: tensor[:, part] for name, tensor in batch.items()} for part in (_FIRST, _OTHERS))
            encoders = ((self.encoder, first), (self.positive_encoder, others))
            return torch.cat([embed_views(*views, self.length_bucketing) for views in encoders], dim=1)
        if self.shared_dropout_mask:
            return embed_with_shared_dropout_mask(self.encoder, batch)
        return embed_views(self.encoder, batch, self.length_bucketing)

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The objective of this device's rows of a contrastive batch, with the auxiliary terms.

        Args:
            batch: tensors [batch, views, tokens], and `labels` [batch] where the data has them.

        Returns:
            A scalar, whose mean over devices is the loss of the whole batch and has its gradient; and what it is made
            of and says of the batch, by the names of the curves, of this device's rows too.
        """
        labels = batch.get("labels")
        batch = _views_of(batch)
        embeddings = self.embed(batch)
        keys = hash_token_ids(batch)
        guided = {} if self.guide is None else {"guides": self._embed_by_guide(self.guide, batch)}
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

    @property
    def guide(self) -> SentenceEncoder | None:
        """The fixed encoder that tells false negatives, where the objective has one."""
        return getattr(self.objective, "guide", None)

    @torch.no_grad()
    def _embed_by_guide(self, guide: SentenceEncoder, batch: Batch) -> Tensor:
        own = {name: batch[name] for name in guide.tokenizer.model_input_names if name in batch}
        guide.to(batch["input_ids"].device)  # it is no submodule, which Lightning would move
        return in_chunks(partial(embed_views, guide, length_bucketing=self.length_bucketing), own, self.chunk_size)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss of one contrastive batch; log the means over devices."""
        loss, curves = self.loss(batch)
        self._loss, self._views = mean_over_ranks(loss.detach()), _views_of(batch)
        # a rank with one row has no negatives, and nan for their similarity
        means = mean_over_ranks(torch.stack(list(curves.values())).detach(), ignore_nan=True).unbind()
        self.log("train/loss", self._loss)
        self.log_dict({f"train/{name}": mean for name, mean in zip(curves, means, strict=True)})
        lr = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.log("train/lr", torch.tensor(lr))  # Lightning would copy a float to the GPU, and wait for the GPU
        return loss

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Log the gradient's norm, check that it and the loss are finite, add the batch to the queue, and clip.

        The check is the only place of a step where the host waits for a GPU.
        In 16-mixed a gradient may be too large at first: its scaler skips the step and tries again with less.
        Lightning's own clipping refuses a fused optimizer in bf16, though only float16's scaler could mind it.
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
        """Add scored pairs to the validation's metrics."""
        self._measure(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add scored pairs to the test's metrics."""
        self._measure(batch, "test")

    def _measure(self, batch: Batch, stage: str) -> None:
        scores = batch.pop("scores")
        embeddings = embed_views(self.encoder, batch, self.length_bucketing).float()
        if not embeddings.isfinite().all():
            raise UserError(f"step {self.global_step}: embeddings are not finite any more: lower optimizer.lr")
        first, second = embeddings.unbind(dim=1)
        self.spearman.update((unit_vectors(first) * unit_vectors(second)).sum(dim=-1), scores)
        alike = scores > POSITIVE_SCORE_THRESHOLD
        self.alignment.update(first[alike], second[alike])
        self.uniformity.update(torch.cat([first, second]))
        self.log(f"{stage}/spearman", self.spearman, prog_bar=True, batch_size=len(scores))
        self.log(f"{stage}/alignment", self.alignment, batch_size=len(scores))
        self.log(f"{stage}/uniformity", self.uniformity, batch_size=len(scores))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what `SentenceEncoder.from_checkpoint` needs to rebuild the encoder from this file alone."""
        encoder = self.encoder
        checkpoint[CHECKPOINT_KEY] = describe(encoder.backbone.config, encoder.tokenizer, encoder.settings)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW over all weights, with its linear schedule step by step."""
        fused = self.trainer.precision != "16-mixed"  # whose scaler clips no gradients for a fused optimizer
        optimizer, schedule = self.optimizer_settings.build(
            self.parameters(), int(self.trainer.estimated_stepping_batches), fused
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _check_options(
    objective: Objective,
    positive_encoder: SentenceEncoder | None,
    shared_dropout_mask: bool,
    queue: MomentumQueue | None,
    chunk_size: int | None,
) -> None:
    """Refuse a value out of range, and options that cannot go together."""
    if chunk_size is not None and chunk_size < 1:
        raise UserError(f"chunk_size={chunk_size}: it must be at least 1")
    if queue and positive_encoder:
        raise UserError("queue: its negatives are the first encoder's, and positives another's; it needs encoders=one")
    if queue and not objective.contrasts:
        raise UserError("queue: the objective has no negatives, and no use for a queue of them: set queue=null")
    if shared_dropout_mask and positive_encoder:
        raise UserError("shared_dropout_mask=true: two encoders have no mask in common; it needs encoders=one")


def _check_guide(guide: SentenceEncoder | None, encoder: SentenceEncoder, queue: MomentumQueue | None) -> None:
    if guide is None:
        return
    if queue:
        raise UserError("objective.guide: the queue keeps none of its vectors: set queue=null")
    if guide.tokenizer.get_vocab() != encoder.tokenizer.get_vocab():
        raise UserError("objective.guide: it must have the vocabulary of the encoder that is trained")


def _make_ready(encoder: SentenceEncoder, gradient_checkpointing: bool, freeze_layers: int | None) -> None:
    """Check an encoder, and apply the options of SimCSEModule to its backbone."""
    if encoder.postprocess:
        raise UserError("this encoder has a post-processing, which was fitted to the weights that it has now")
    if gradient_checkpointing:
        recompute_layers(encoder.backbone)
    build_masks_without_waiting()
    if freeze_layers is not None:
        freeze_first_layers(encoder, freeze_layers)


def embed_views(encoder: SentenceEncoder, batch: Batch, length_bucketing: bool = False) -> Tensor:
    """All views of a batch at once: tensors [batch, views, tokens] in, [batch, views, dim] out.

    Args:
        encoder: what encodes.
        batch: the views.
        length_bucketing: in groups of like length; else in one padded pass.
    """
    rows, views = batch["input_ids"].shape[:2]
    sequences = {name: tensor.flatten(0, 1) for name, tensor in batch.items()}
    vectors: Tensor = encoder.forward_in_length_groups(sequences) if length_bucketing else encoder(sequences)
    return vectors.view(rows, views, -1)


def _views_of(batch: Batch) -> Batch:
    """A training batch without its labels."""
    return {name: tensor for name, tensor in batch.items() if name != "labels"}
