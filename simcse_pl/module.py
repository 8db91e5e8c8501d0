"""SimCSEModule: wires encoder, objective, metrics and optimizer together for Lightning."""

from typing import Any

import torch
import torch.nn.functional as F
from pytorch_lightning import LightningModule
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torchmetrics import SpearmanCorrCoef

from simcse_pl.checkpoint import ENTRY, describe
from simcse_pl.data.batches import Batch
from simcse_pl.data.sts import ALIKE_ABOVE
from simcse_pl.encoder import SentenceEncoder
from simcse_pl.metrics import Alignment, Uniformity
from simcse_pl.objective import mean_similarities
from simcse_pl.optimizer import LinearAdamW


class SimCSEModule(LightningModule):
    """Trains an encoder on batches of views, and measures it on scored pairs.

    It logs train/loss, train/lr, train/positive_similarity, train/negative_similarity and train/grad_norm
    in training; {val,test}/spearman, /alignment and /uniformity over all validation or test pairs.

    Args:
        encoder: what is trained.
        objective: from embeddings [batch, views, dim] to a scalar loss.
        optimizer: its settings.
    """

    def __init__(self, encoder: SentenceEncoder, objective: nn.Module, optimizer: LinearAdamW) -> None:
        super().__init__()
        self.encoder = encoder.train()  # Lightning trains each module in the mode that it finds it in
        self.objective = objective
        self.optimizer_settings = optimizer
        self.spearman = SpearmanCorrCoef()
        self.alignment = Alignment()
        self.uniformity = Uniformity()

    def embed(self, batch: Batch) -> Tensor:
        """All views of a batch in one pass: tensors [batch, views, tokens] in, [batch, views, dim] out."""
        shape = batch["input_ids"].shape
        flat = {name: tensor.flatten(0, 1) for name, tensor in batch.items()}
        vectors: Tensor = self.encoder(flat)
        return vectors.view(shape[0], shape[1], -1)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The objective of one contrastive batch."""
        embeddings = self.embed(batch)
        loss: Tensor = self.objective(embeddings)
        positive, negative = mean_similarities(embeddings)
        scores: dict[str, Any] = {
            "train/positive_similarity": positive,
            "train/negative_similarity": negative,
            "train/lr": self.trainer.optimizers[0].param_groups[0]["lr"],
        }
        self.log("train/loss", loss, prog_bar=True)
        self.log_dict(scores)
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Log the gradient's norm, before it is clipped."""
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        self.log("train/grad_norm", torch.nn.utils.get_total_norm(gradients))

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add scored pairs to the validation's metrics."""
        self._measure(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add scored pairs to the test's metrics."""
        self._measure(batch, "test")

    def _measure(self, batch: Batch, stage: str) -> None:
        scores = batch.pop("scores")
        first, second = self.embed(batch).float().unbind(dim=1)
        self.spearman.update(F.cosine_similarity(first, second), scores)
        alike = scores > ALIKE_ABOVE
        self.alignment.update(first[alike], second[alike])
        self.uniformity.update(torch.cat([first, second]))
        self.log(f"{stage}/spearman", self.spearman, prog_bar=True, batch_size=len(scores))
        self.log(f"{stage}/alignment", self.alignment, batch_size=len(scores))
        self.log(f"{stage}/uniformity", self.uniformity, batch_size=len(scores))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what `SentenceEncoder.from_checkpoint` needs to rebuild the encoder from this file alone."""
        encoder = self.encoder
        checkpoint[ENTRY] = describe(encoder.backbone.config, encoder.tokenizer, encoder.settings)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW over all weights, with its linear schedule step by step."""
        optimizer, schedule = self.optimizer_settings.build(
            self.parameters(), int(self.trainer.estimated_stepping_batches)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
