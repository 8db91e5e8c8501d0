"""Training: rows per second of the sentence-transformers trainer, plain loops, and simcse_pl.

    python -m benchmarks.train                            sentences of the packaged Wikipedia sample
    python -m benchmarks.train --triplets triplets.csv    rows of an anchor, its positive and a hard negative

All use the packaged encoder (6 layers, mean pooling, dropout), the same rows, length, AdamW and temperature. The first
step of each run is not counted. `views apart` encodes each view separately, padded to its own longest sentence; `one
pass` pads all views to the longest sentence of the batch.
"""

import argparse
import copy
import io
import logging
import math
import random
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from benchmarks.common import (
    PACKAGED,
    QUIET,
    StepClock,
    comparison,
    in_turn,
    parser,
    save,
    wikipedia_sentences,
)
from simcse_pl.callbacks import SeedEveryStep
from simcse_pl.data.collator import ViewCollator
from simcse_pl.data.rows import Row, read_rows
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.sources import resolve
from simcse_pl.models.tokenization import tokenize
from simcse_pl.module import SimCSEModule
from simcse_pl.speed.cpu import CpuSpeed, Speed
from simcse_pl.trainer import has_bf16, make_trainer
from simcse_pl.utils.tensors import to_device
from simcse_pl.utils.types import Batch

LR = 3e-5


def sentence_transformers_trainer(
    rows: Sequence[Row], arguments: argparse.Namespace, clock: StepClock, model: str = PACKAGED, bf16: bool = False
) -> None:
    """Train with its defaults and MultipleNegativesRankingLoss, as its documentation trains SimCSE."""
    import datasets
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    network = SentenceTransformer(resolve(model), device=clock.device)
    network.max_seq_length = arguments.max_length
    views = [row * 2 if len(row) == 1 else row for row in rows]
    columns = {f"view {i}": list(column) for i, column in enumerate(zip(*views, strict=True))}

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock.tick()

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
            use_cpu=clock.device == "cpu",
            bf16=bf16,
        )
        loss, data = MultipleNegativesRankingLoss(network, scale=20.0), datasets.Dataset.from_dict(columns)
        SentenceTransformerTrainer(
            model=network, args=options, train_dataset=data, loss=loss, callbacks=[Clock()]
        ).train()


def plain_loop(
    rows: Sequence[Any],
    arguments: argparse.Namespace,
    clock: StepClock,
    encoder: SentenceEncoder,
    apart: bool = False,
    bf16: bool = False,
    compile: bool = False,
) -> None:
    """Train a copy of the encoder on rows of text or of tokens with a plain loop, in float32, or by autocast in bf16.

    With `apart`, each view is encoded separately, padded to its own longest sentence. `compile` compiles the backbone.
    """
    encoder = copy.deepcopy(encoder).to(clock.device).train()
    encoder.groups.tokens_per_pass = math.inf
    if compile:
        encoder.backbone.forward = torch.compile(encoder.backbone.forward)
    on_gpu = clock.device != "cpu"
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=LR, weight_decay=0.0, fused=on_gpu)
    objective = ContrastiveLoss()
    collate = ViewCollator(encoder.tokenizer, arguments.max_length)
    for start in range(0, len(rows), arguments.batch_size):
        batch = to_device(collate(rows[start : start + arguments.batch_size]), encoder.device)
        with torch.autocast(clock.device, torch.bfloat16, enabled=bf16):
            if apart:
                views = range(batch["input_ids"].shape[1])
                embeddings = torch.stack([encoder(_trimmed(batch, view)) for view in views], dim=1)
            else:
                embeddings = encoder.embed(batch)
            loss = objective(*embeddings.unbind(dim=1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        clock.tick()


def _trimmed(batch: Batch, view: int) -> Batch:
    longest = int(batch["attention_mask"][:, view].sum(dim=1).max())
    return {name: x[:, view, :longest] for name, x in batch.items()}


def token_rows(encoder: SentenceEncoder, rows: Sequence[Row], max_length: int) -> list[Any]:
    """Return the token ids of rows as arrays, like the token cache."""
    flat = tokenize(encoder.tokenizer, [sentence for row in rows for sentence in row], max_length)
    arrays = iter(map(np.array, flat))
    return [tuple(next(arrays) for _ in row) for row in rows]


def simcse_pl(
    rows: Sequence[Any],
    arguments: argparse.Namespace,
    clock: StepClock,
    encoder: SentenceEncoder,
    precision: str = "auto",
    speed: Speed | None = None,
    callbacks: Sequence[pl.Callback] = (),
    **options: Any,
) -> None:
    """Train a copy of the encoder on rows of tokens with the objects that train.py builds.

    There are no validation, logs and checkpoints. `options` are those of SimCSEModule, such as `compile`.
    """
    optimizer = partial(torch.optim.AdamW, lr=LR)
    module = SimCSEModule(copy.deepcopy(encoder), ContrastiveLoss(), optimizer, **options)

    class Clock(pl.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            clock.tick()

    on_gpu = clock.device != "cpu"
    trainer = make_trainer(
        precision,
        "gpu" if on_gpu else "cpu",
        devices=1,
        max_epochs=1,
        gradient_clip_val=1.0,
        callbacks=[SeedEveryStep(42), CpuSpeed(speed or Speed()), Clock(), *callbacks],
        **QUIET,
    )
    loader = DataLoader(
        rows,  # type: ignore[arg-type]
        batch_size=arguments.batch_size,
        collate_fn=ViewCollator(encoder.tokenizer, arguments.max_length),
        shuffle=True,
        pin_memory=on_gpu,
    )
    with warnings.catch_warnings(action="ignore"):  # there is no validation, and no worker
        trainer.fit(module, loader)


def seconds_of(train: Callable[[StepClock], None], steps: int) -> float:
    """Train on the CPU, and return the seconds of all steps but the first."""
    clock = StepClock(steps)
    train(clock)
    return clock.seconds


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__)
    command_line.add_argument("--triplets", type=Path, help="file of triplets (`simcse prepare nli` writes one)")
    command_line.add_argument("--batch-size", type=int, default=64)
    command_line.add_argument("--max-length", type=int, default=32, help="tokens read per sentence")
    command_line.add_argument("--steps", type=int, default=5, help="timed steps per round")
    arguments = command_line.parse_args()

    for name in ("pytorch_lightning", "lightning.pytorch", "sentence_transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if arguments.triplets:
        rows = read_rows(arguments.triplets, [0, 1, 2])
        random.Random(42).shuffle(rows)
    else:
        rows = [(sentence,) for sentence in wikipedia_sentences((arguments.steps + 1) * arguments.batch_size)]
    steps = min(arguments.steps, len(rows) // arguments.batch_size - 1)
    if steps < 1:
        raise SystemExit(f"error: {len(rows)} rows are fewer than two batches of {arguments.batch_size}")
    rows = rows[: (steps + 1) * arguments.batch_size]
    encoder = SentenceEncoder.from_pretrained(PACKAGED, pooling="mean")
    unpadded = SentenceEncoder.from_pretrained(PACKAGED, pooling="mean", attn_implementation="unpadded")
    plain = partial(plain_loop, rows, arguments, encoder=encoder)
    ours = partial(simcse_pl, token_rows(encoder, rows, arguments.max_length), arguments, encoder=encoder)
    one_pass = Speed(tokens_per_pass=math.inf)
    ways: dict[str, Callable[[StepClock], None]] = {
        "sentence-transformers trainer": partial(sentence_transformers_trainer, rows, arguments),
        "plain loop, views apart": partial(plain, apart=True),
        "plain loop, one pass": partial(plain, apart=False),
        "simcse_pl, float32": partial(ours, precision="32-true"),
        "simcse_pl, padded": partial(ours, speed=one_pass),
        "simcse_pl, unpadded": partial(ours, encoder=unpadded),
        "simcse_pl, unpadded, one pass": partial(ours, encoder=unpadded, speed=one_pass),
        "simcse_pl, torch's dropout": partial(ours, speed=Speed(fast_dropout=False)),
        "simcse_pl": ours,
    }
    timed = {name: partial(seconds_of, way, steps) for name, way in ways.items()}
    seconds = in_turn(timed, arguments.rounds, warm_up=False)
    kind, views = ("triplets", 3) if arguments.triplets else ("sentences", 2)
    note = f"{steps} steps of {arguments.batch_size} rows of {views} views, up to {arguments.max_length} tokens"
    note += "" if has_bf16("cpu") else "; no bf16 on this CPU"
    amount = steps * arguments.batch_size
    table = comparison(f"train_{kind}", f"Training on {kind}", "rows/s", seconds, amount, notes=[note])
    save(arguments.out, table)


if __name__ == "__main__":
    main()
