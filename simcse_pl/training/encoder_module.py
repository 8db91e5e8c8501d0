"""EncoderModule: the parts of a LightningModule that do not depend on the loss."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer

from simcse_pl.data.evaluation_sentences import EvaluationSentences
from simcse_pl.data.evaluators import TEST, VALIDATION, measure
from simcse_pl.models.adapters import adapter_parameters, has_adapter, without_base
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.lightning_checkpoint import CHECKPOINT_KEY, checkpoint_entry
from simcse_pl.models.roles import RowKind
from simcse_pl.models.tokenization import Batch
from simcse_pl.training.freezing import example_batch, freeze_unused
from simcse_pl.training.optimizer import (
    MakeOptimizer,
    MakeSchedule,
    build_optimizer,
    build_schedule,
    check_optimizer,
    learning_rate,
    parameter_groups,
)
from simcse_pl.training.speed import Speed
from simcse_pl.utils.distributed import all_gather_with_grad, split_batch
from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)

_PREFIXES = {VALIDATION: "val", TEST: "test"}


class EncoderModule(LightningModule):
    """Trains an encoder; a subclass adds `training_step`.

    It embeds the sentences of the datamodule's evaluators and logs their metrics, as val/NAME and test/NAME. It
    builds the optimizer and the schedule, and adds to checkpoints what `SentenceEncoder.from_checkpoint` needs.

    Args:
        encoder: the encoder to train.
        optimizer: makes the optimizer from parameters, such as `functools.partial(torch.optim.AdamW, lr=3e-5)`.
        scheduler: makes the schedule of the learning rate from the optimizer; None for a constant rate. It is
            advanced every step.
        layer_decay, no_weight_decay: see optimizer.parameter_groups.
        speed: how a CPU computes the same loss; None for `Speed()`.

    Raises:
        UserError: if a value is out of range.
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        optimizer: MakeOptimizer,
        scheduler: MakeSchedule | None = None,
        layer_decay: float | None = None,
        no_weight_decay: Sequence[str] = (),
        speed: Speed | None = None,
    ) -> None:
        super().__init__()
        check_optimizer(optimizer, scheduler)
        if getattr(encoder.backbone, "is_quantized", False) and not has_adapter(encoder.backbone):
            raise UserError("quantization: quantized weights cannot be trained: add model/adapter=lora")
        if any(weight.requires_grad and weight.dtype == torch.bfloat16 for weight in encoder.backbone.parameters()):
            raise UserError("model.dtype=bfloat16: small updates of such weights are lost: add model/adapter=lora")
        if layer_decay is not None and not 0 < layer_decay <= 1:
            raise UserError(f"module.layer_decay={layer_decay}: it must be above 0 and at most 1, or null")
        if layer_decay is not None and learning_rate(optimizer) is None:
            raise UserError("module.layer_decay needs optimizer.lr")
        self.encoder = encoder
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.layer_decay = layer_decay
        self.no_weight_decay = no_weight_decay
        self.speed = speed or Speed()
        self._prepared = self._fast = False
        self.strict_loading = not has_adapter(encoder.backbone)  # checkpoints lack the base model of an adapter
        self._batches: list[Tensor] = []
        self._vectors: Tensor | None = None

    def encoders(self) -> list[SentenceEncoder]:
        """Return the trained encoders; the first is validated, tested and saved."""
        return [self.encoder]

    def prepare(self, rows: Mapping[str, RowKind] | None = None) -> None:
        """Prepare for training on these rows, once: freeze the parameters that no vector depends on.

        Args:
            rows: what the rows of each data set have, by its name; None for one set of pairs.
        """
        inputs = views_of(example_batch(self.encoder, RowKind()))
        for encoder in self.encoders():
            freeze_unused(encoder, partial(encoder.embed, inputs))
        self._prepared = True

    def setup(self, stage: str) -> None:
        """Prepare for training on the rows of the datamodule, unless that is done, and choose what is fastest."""
        if stage == "fit" and not self._prepared:
            data = self.trainer.datamodule  # type: ignore[attr-defined]
            self.prepare(data.row_kinds if data else None)
        if stage in ("fit", "validate") and not self._fast:
            self._fast = True
            self.use_speed(self.speed)

    def use_speed(self, speed: Speed) -> None:
        """Train as `speed` says, measured if it does not."""
        if self.trainer.strategy.root_device.type != "cpu":
            return
        bf16 = str(self.trainer.precision).startswith("bf16")
        self.speed = speed.measured(self.encoder.backbone, bf16)
        if self.trainer.is_global_zero:
            log.info("%-13s %s", "speed", self.speed)
        for encoder in [part for part in self.modules() if isinstance(part, SentenceEncoder)]:
            self.speed.apply(encoder)

    def on_validation_epoch_start(self) -> None:
        """Start a measurement."""
        self._batches, self._vectors = [], None

    on_test_epoch_start = on_validation_epoch_start

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Embed sentences, [batch, tokens]."""
        vectors = self.encoder.forward_in_length_groups(batch)[:, : self.encoder.truncate_dim]
        self._batches.append(vectors.float())

    test_step = validation_step

    def vectors(self) -> Tensor:
        """Return the embeddings of a validation or test that is about to end, of all devices: [n, dim] on the CPU.

        Raises:
            UserError: if they are not finite.
        """
        if self._vectors is None:
            own = torch.cat(self._batches)
            self._vectors = all_gather_with_grad(own, split_batch(len(own), own.device)).cpu()
            self._batches = []
            if not self._vectors.isfinite().all():
                raise UserError(f"step {self.global_step}: embeddings are no longer finite: lower optimizer.lr")
        return self._vectors

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the validation sets."""
        self._evaluate(VALIDATION)

    def on_test_epoch_end(self) -> None:
        """Log the metrics of the test sets."""
        self._evaluate(TEST)

    def _evaluate(self, split: str) -> None:
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        sentences: EvaluationSentences = data.sentences[split]
        vectors = self.vectors()
        if len(vectors) < len(sentences):
            raise UserError(
                f"trainer.limit_{_PREFIXES[split]}_batches: {len(vectors)} of {len(sentences)} sentences were "
                "embedded, and the evaluators need all of them: give a smaller file instead"
            )
        metrics = measure(data.evaluators, sentences.encode(vectors), split) if self.trainer.is_global_zero else {}
        metrics = self.trainer.strategy.broadcast(metrics)
        for name, value in metrics.items():
            metric = f"{_PREFIXES[split]}/{name}"
            shown = metric == getattr(self.trainer.checkpoint_callback, "monitor", None)
            self.log(metric, torch.tensor(value, device=self.device), prog_bar=shown, sync_dist=True)

    def needs_embeddings(self, dataset: str | None) -> bool:
        """Return whether the loss of a data set needs embeddings."""
        return True

    def save(self, folder: Path) -> None:
        """Save the trained encoder."""
        self.encoder.save_pretrained(folder)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what `SentenceEncoder.from_checkpoint` needs beside the weights; leave out the base of an adapter."""
        encoder = self.encoder
        checkpoint[CHECKPOINT_KEY] = checkpoint_entry(encoder.backbone, encoder.tokenizer, encoder.settings)
        for name, part in self.named_modules():
            if isinstance(part, SentenceEncoder):
                without_base(part.backbone, f"{name}.backbone.", checkpoint["state_dict"])

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check that the checkpoint has the state of such an optimizer, unless a subclass makes its own.

        Raises:
            UserError: if it is another optimizer, or its parameters are in other groups.
        """
        own_weights = {f"encoder.backbone.{name}" for name in adapter_parameters(self.encoder.backbone)}
        if missing := sorted(own_weights - checkpoint["state_dict"].keys()):
            raise UserError(f"resume: the checkpoint is of a run with another adapter: it lacks {missing[0]}")
        own_optimizers = type(self).configure_optimizers is not EncoderModule.configure_optimizers
        if own_optimizers or not (states := checkpoint.get("optimizer_states")):
            return
        saved, own = states[0]["param_groups"], self._build_optimizer().state_dict()["param_groups"]
        same_sizes = [len(group["params"]) for group in saved] == [len(group["params"]) for group in own]
        # A schedule adds settings to the groups.
        if not same_sizes or any(new.keys() - old.keys() for new, old in zip(own, saved, strict=True)):
            raise UserError(
                "resume: the checkpoint is of a run with another optimizer or other parameter groups: give the same "
                "optimizer, module.layer_decay and module.no_weight_decay"
            )

    def _build_optimizer(self) -> Optimizer:
        lr = learning_rate(self.optimizer)
        groups = parameter_groups(self, self.encoders(), lr, self.layer_decay, self.no_weight_decay)
        return build_optimizer(self.optimizer, groups, gradient_scaler=self.trainer.precision == "16-mixed")

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return the optimizer of all weights and its schedule, advanced every step."""
        optimizer = self._build_optimizer()
        schedule = build_schedule(self.scheduler, optimizer, int(self.trainer.estimated_stepping_batches))
        if schedule is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def views_of(batch: Mapping[str, Any]) -> Batch:
    """Return the tensors of a training batch that an encoder reads, [batch, views, tokens]."""
    return {name: tensor for name, tensor in batch.items() if name not in ("labels", "roles", "dataset")}
