"""Baselines of benchmarks/train.py; each returns the seconds of its steps, without the first."""

import argparse
import copy
import io
import math
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from benchmarks.common import PACKAGED
from simcse_pl.data.readers.row_reader import Row
from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.sources import resolve
from simcse_pl.utils.types import Batch

LR = 3e-5


def sentence_transformers_trainer(rows: Sequence[Row], arguments: argparse.Namespace) -> float:
    """Train with its defaults and MultipleNegativesRankingLoss, as its documentation trains SimCSE."""
    import datasets
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    model = SentenceTransformer(resolve(PACKAGED), device="cpu")
    model.max_seq_length = arguments.max_length
    views = [row * 2 if len(row) == 1 else row for row in rows]
    columns = {f"view {i}": list(column) for i, column in enumerate(zip(*views, strict=True))}
    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            times.append(time.perf_counter())

    with TemporaryDirectory() as folder, redirect_stdout(None), redirect_stderr(io.StringIO()):
        options = SentenceTransformerTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=arguments.batch_size,
            num_train_epochs=1,
            learning_rate=LR,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        loss, data = MultipleNegativesRankingLoss(model, scale=20.0), datasets.Dataset.from_dict(columns)
        SentenceTransformerTrainer(
            model=model, args=options, train_dataset=data, loss=loss, callbacks=[Clock()]
        ).train()
    return times[-1] - times[0]


def plain_loop(rows: Sequence[Row], arguments: argparse.Namespace, encoder: SentenceEncoder, apart: bool) -> float:
    """Train with a plain loop in float32; `apart` encodes each view separately, padded to its own longest sentence."""
    encoder = copy.deepcopy(encoder).train()
    encoder.groups.tokens_per_pass = math.inf
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=LR, weight_decay=0.0)
    objective = ContrastiveLoss()
    collate = ViewCollator(encoder.tokenizer, arguments.max_length)
    times = []
    for start in range(0, len(rows), arguments.batch_size):
        batch = collate(rows[start : start + arguments.batch_size])
        if apart:
            views = range(batch["input_ids"].shape[1])
            embeddings = torch.stack([encoder(_trimmed(batch, view)) for view in views], dim=1)
        else:
            embeddings = encoder.embed(batch)
        optimizer.zero_grad()
        objective(*embeddings.unbind(dim=1)).backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter())
    return times[-1] - times[0]


def _trimmed(batch: Batch, view: int) -> Batch:
    longest = int(batch["attention_mask"][:, view].sum(dim=1).max())
    return {name: x[:, view, :longest] for name, x in batch.items()}
