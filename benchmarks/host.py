"""What a training step costs beside its arithmetic: the host's time, with a model so small that nothing else counts.

    OMP_NUM_THREADS=1 python -m benchmarks.host

A plain loop around the same encoder and loss is compared with the shortest LightningModule, which shows what Lightning
itself costs, and with SimCSEModule, its callbacks and its logs. The model has one layer of width 8, and a batch 8 rows
of 2 sentences. The time is that of the process, on one thread.
"""

import copy
import logging
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import nn
from torch.utils.data import DataLoader
from transformers import BertConfig

from benchmarks.common import QUIET, comparison, in_turn, parser, sample_sentences, save
from benchmarks.models import make_tokenizer
from benchmarks.train import LR, token_rows
from simcse_pl.callbacks import BatchCurves, CountSteps, SeedEveryStep, SpeedCurves
from simcse_pl.data.collator import ViewCollator
from simcse_pl.lab.dashboards import Dashboard
from simcse_pl.loggers import CurvesLogger
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.backbone import draw_model, without_pooler
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.preemption import Preemption
from simcse_pl.speed.cpu import CpuSpeed, Speed
from simcse_pl.trainer import make_trainer
from simcse_pl.utils.types import Batch

BATCH_SIZE, WARM_UP = 8, 20
ONE_GROUP = Speed(tokens_per_pass=float("inf"), fast_dropout=False)


def tiny_encoder() -> SentenceEncoder:
    """Return an encoder of one layer of width 8, with random weights and dropout."""
    torch.manual_seed(42)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    tokenizer = make_tokenizer()
    return SentenceEncoder(without_pooler(draw_model(BertConfig(vocab_size=len(tokenizer), **size))), tokenizer)


class Timed(pl.Callback):
    """Measures the time of the process from step WARM_UP to the last one."""

    def __init__(self, steps: int) -> None:
        self.last, self.begin, self.seconds = WARM_UP + steps, 0.0, 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        """Read the clock at both ends."""
        if trainer.global_step == WARM_UP:
            self.begin = time.process_time()
        elif trainer.global_step == self.last:
            self.seconds = time.process_time() - self.begin


def plain_loop(encoder: SentenceEncoder, batches: DataLoader, steps: int) -> float:
    """Return the seconds of steps of a loop with the encoder, the loss, clipping, AdamW and a linear schedule."""
    encoder = copy.deepcopy(encoder).train()
    ONE_GROUP.apply(encoder.backbone, encoder.groups)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=LR, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, WARM_UP + steps)
    objective, begin = ContrastiveLoss(), 0.0
    for step, batch in enumerate(islice(batches, WARM_UP + steps)):
        if step == WARM_UP:
            begin = time.process_time()
        loss = objective(*encoder.embed(batch).unbind(dim=1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return time.process_time() - begin


class PlainModule(pl.LightningModule):
    """What the plain loop does, as a LightningModule."""

    def __init__(self, encoder: SentenceEncoder, steps: int) -> None:
        super().__init__()
        self.encoder, self.steps, self.objective = encoder, steps, ContrastiveLoss()

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """Return the loss."""
        return self.objective(*self.encoder.embed(batch).unbind(dim=1))

    def configure_gradient_clipping(self, *_: object, **__: object) -> None:
        """Clip the gradients, which Lightning cannot do for a fused optimizer."""
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return AdamW and a linear schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=LR, fused=True)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, self.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def lightning(encoder: SentenceEncoder, batches: DataLoader, steps: int) -> float:
    """Return the seconds of steps of PlainModule, without callbacks and logs."""
    timed = Timed(steps)
    trainer = pl.Trainer(accelerator="cpu", max_steps=WARM_UP + steps, callbacks=[timed], **QUIET)
    encoder = copy.deepcopy(encoder).train()
    ONE_GROUP.apply(encoder.backbone, encoder.groups)
    with warnings.catch_warnings(action="ignore"):
        trainer.fit(PlainModule(encoder, WARM_UP + steps), batches)
    return timed.seconds


def simcse_pl(
    encoder: SentenceEncoder, batches: DataLoader, steps: int, bare: bool = False, wandb: bool = False
) -> float:
    """Return the seconds of steps of SimCSEModule: with the callbacks of a run and metrics.csv, `bare`, or W&B too."""
    timed = Timed(steps)
    optimizer = partial(torch.optim.AdamW, lr=LR)
    schedule = partial(torch.optim.lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.0)
    module = SimCSEModule(copy.deepcopy(encoder), ContrastiveLoss(), optimizer, schedule)
    with TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        callbacks: list[pl.Callback] = [CpuSpeed(ONE_GROUP), timed]
        loggers: list[object] = []
        if not bare:
            own = [
                SeedEveryStep(42),
                CountSteps(),
                BatchCurves(),
                SpeedCurves(),
                Preemption(Path(folder) / "last.ckpt"),
            ]
            callbacks += own
            loggers.append(CurvesLogger(folder, name="", version=""))
        if wandb:
            loggers.append(Dashboard(folder, "host", mode="offline"))
        options = QUIET | {"logger": loggers or False, "log_every_n_steps": 10}
        steps += WARM_UP
        trainer = make_trainer(
            "32-true", "cpu", devices=1, max_steps=steps, gradient_clip_val=1.0, callbacks=callbacks, **options
        )
        trainer.fit(module, batches)
        if wandb:
            loggers[-1].experiment.finish()  # type: ignore[attr-defined]
    return timed.seconds


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__)
    command_line.add_argument("--steps", type=int, default=300, help="number of timed steps of each way and round")
    arguments = command_line.parse_args()
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    encoder = tiny_encoder()
    rows = [(sentence,) for sentence in sample_sentences()]
    count = BATCH_SIZE * (WARM_UP + arguments.steps)
    tokens = (token_rows(encoder, rows, 32) * (count // len(rows) + 1))[:count]
    batches = DataLoader(
        tokens, batch_size=BATCH_SIZE, collate_fn=ViewCollator(encoder.tokenizer, 32, encoder.templates)
    )
    ways: dict[str, Callable[[], float]] = {"plain loop": partial(plain_loop, encoder, batches, arguments.steps)}
    ways["the shortest LightningModule"] = partial(lightning, encoder, batches, arguments.steps)
    ways["SimCSEModule alone"] = partial(simcse_pl, encoder, batches, arguments.steps, bare=True)
    ways["with callbacks and metrics.csv"] = partial(simcse_pl, encoder, batches, arguments.steps)
    ways["with W&B (offline) too"] = partial(simcse_pl, encoder, batches, arguments.steps, wandb=True)
    seconds = in_turn(ways, arguments.rounds)
    save(arguments.out, comparison("host", "The host's time of a step", "steps/s", seconds, arguments.steps))


if __name__ == "__main__":
    main()
