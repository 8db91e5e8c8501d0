"""Training by simcse_pl for benchmarks/train.py."""

import argparse
import copy
import time
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from benchmarks.train_baselines import LR
from simcse_pl.cpu import Speed
from simcse_pl.data.readers.row_reader import Row
from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import tokenize
from simcse_pl.training.callbacks import CpuSpeed, SeedEveryStep
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.trainer import make_trainer


def simcse_pl(
    rows: Sequence[Row],
    arguments: argparse.Namespace,
    encoder: SentenceEncoder,
    precision: str = "auto",
    speed: Speed | None = None,
) -> float:
    """Train with the objects that train.py builds, without validation, logs and checkpoints.

    Returns:
        The seconds of all steps but the first.
    """
    optimizer = partial(torch.optim.AdamW, lr=LR)
    module = SimCSEModule(copy.deepcopy(encoder), ContrastiveLoss(), optimizer)
    tokens = [
        tuple(map(np.array, tokenize(encoder.tokenizer, list(row), arguments.max_length))) for row in rows
    ]  # arrays, like the token cache
    times: list[float] = []

    class Clock(pl.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            times.append(time.perf_counter())

    trainer = make_trainer(
        precision,
        "cpu",
        devices=1,
        max_epochs=1,
        gradient_clip_val=1.0,
        callbacks=[SeedEveryStep(42), CpuSpeed(speed or Speed()), Clock()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    collate = ViewCollator(encoder.tokenizer, arguments.max_length)
    loader = DataLoader(tokens, batch_size=arguments.batch_size, collate_fn=collate, shuffle=True)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no validation, and no worker
        trainer.fit(module, loader)
    return times[-1] - times[0]
