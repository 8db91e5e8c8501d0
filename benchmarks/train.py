"""Training: rows a second of the sentence-transformers trainer, of plain loops, and of ours.

    python -m benchmarks.train                            sentences of the packaged Wikipedia sample
    python -m benchmarks.train --triplets triplets.csv    rows of an anchor, its positive and a hard negative
    python -m benchmarks.train --compile                  ours by torch.compile besides

The same packaged encoder with its 6 layers, mean pooling and dropout, the same rows in the same order, length,
AdamW and temperature for all. The first step of every run is not counted. `views apart` encodes every view in a pass
of its own, padded to its own longest; `one pass` pads all views to the longest of the batch.
"""

import argparse
import copy
import io
import logging
import random
import time
import warnings
from collections.abc import Sequence
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

from benchmarks.comparison import (
    PACKAGED,
    Way,
    comparison,
    in_turn,
    matrix_rates,
    operations_of,
    parser_of_rounds,
    save,
)
from simcse_pl.data.collators import ViewCollator
from simcse_pl.data.prepare.wikipedia import gensim_sample
from simcse_pl.data.readers.row_reader import Row, read_rows
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.models.backbone import resolve
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import Batch, tokenize
from simcse_pl.training.callbacks import SeedEveryStep
from simcse_pl.training.fast_dropout import FastDropout
from simcse_pl.training.module import SimCSEModule, embed_views
from simcse_pl.training.optimizer import LinearAdamW
from simcse_pl.training.trainer import has_bf16, make_trainer

LR = 3e-5


def sentence_transformers_trainer(rows: Sequence[Row], steps: int, arguments: argparse.Namespace) -> float:
    """Its defaults, with MultipleNegativesRankingLoss, as its documentation trains SimCSE."""
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
    width = max(2, len(rows[0]))
    columns = {f"view {i}": [row[i] if len(row) > 1 else row[0] for row in rows] for i in range(width)}

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            times.append(time.perf_counter())

    times: list[float] = []
    with TemporaryDirectory() as folder, redirect_stdout(None), redirect_stderr(io.StringIO()):  # no bars, no reports
        options = SentenceTransformerTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=arguments.batch_size,
            max_steps=steps + 1,
            learning_rate=LR,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        SentenceTransformerTrainer(
            model=model,
            args=options,
            train_dataset=datasets.Dataset.from_dict(columns),
            loss=MultipleNegativesRankingLoss(model, scale=20.0),
            callbacks=[Clock()],
        ).train()
    return times[-1] - times[0]


def plain_loop(encoder: SentenceEncoder, rows: Sequence[Row], arguments: argparse.Namespace, apart: bool) -> float:
    """A training loop in float32 as a tutorial would write it."""
    encoder = copy.deepcopy(encoder).train()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=LR, weight_decay=0.0)
    objective = ContrastiveObjective()
    collate = ViewCollator(encoder.tokenizer, arguments.max_length)
    begin = 0.0
    for start in range(0, len(rows), arguments.batch_size):
        batch = collate(rows[start : start + arguments.batch_size])
        if apart:
            views = range(batch["input_ids"].shape[1])
            embeddings = torch.stack([encoder(_trimmed(batch, view)) for view in views], dim=1)
        else:
            embeddings = embed_views(encoder, batch)
        optimizer.zero_grad()
        objective(embeddings).backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        begin = begin or time.perf_counter()
    return time.perf_counter() - begin


def _trimmed(batch: Batch, view: int) -> Batch:
    """One view of a batch, padded to its own longest."""
    longest = int(batch["attention_mask"][:, view].sum(dim=1).max())
    return {name: x[:, view, :longest] for name, x in batch.items()}


def ours(
    encoder: SentenceEncoder,
    rows: Sequence[Row],
    arguments: argparse.Namespace,
    precision: str = "auto",
    length_bucketing: bool = True,
    fast_dropout: bool = True,
    compile: bool = False,
) -> float:
    """What train.py builds, without validation, logs and checkpoints."""
    options = {"length_bucketing": length_bucketing, "compile": compile}
    module = SimCSEModule(copy.deepcopy(encoder), ContrastiveObjective(), LinearAdamW(lr=LR), **options)
    if not fast_dropout:
        use_torchs_dropout(module.encoder)
    texts = [sentence for row in rows for sentence in row]
    tokens = iter(map(np.array, tokenize(encoder.tokenizer, texts, arguments.max_length)))  # as the corpus has them
    tokenized = [tuple(next(tokens) for _ in row) for row in rows]
    collate = ViewCollator(encoder.tokenizer, arguments.max_length)
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
        callbacks=[SeedEveryStep(42), Clock()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(tokenized, batch_size=arguments.batch_size, collate_fn=collate, shuffle=True)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no validation, and no worker
        trainer.fit(module, loader)
    return times[-1] - times[0]


def use_torchs_dropout(encoder: SentenceEncoder) -> None:
    """Undo `use_fast_dropout`."""
    for module in list(encoder.backbone.modules()):
        for name, child in module.named_children():
            if isinstance(child, FastDropout):
                setattr(module, name, nn.Dropout(child.p))
    encoder.backbone.set_attn_implementation("sdpa")


def main() -> None:
    """The command line."""
    command_line = parser_of_rounds(__doc__)
    command_line.add_argument("--triplets", type=Path, help="a file of rows of three sentences (data.nli makes one)")
    command_line.add_argument("--batch-size", type=int, default=64)
    command_line.add_argument("--max-length", type=int, default=32, help="tokens read of a sentence")
    command_line.add_argument("--steps", type=int, default=5, help="of a round, one more besides")
    command_line.add_argument("--compile", action="store_true", help="ours with compile=true as well")
    arguments = command_line.parse_args()

    for name in ("pytorch_lightning", "lightning.pytorch", "sentence_transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    rows = read_rows(arguments.triplets, [0, 1, 2]) if arguments.triplets else read_rows(gensim_sample())
    random.Random(42).shuffle(rows)
    rows = rows[: (arguments.steps + 1) * arguments.batch_size]
    steps = len(rows) // arguments.batch_size - 1  # but for the first
    if steps < 1:
        raise SystemExit(f"error: {len(rows)} rows are fewer than two batches of {arguments.batch_size}")
    rows = rows[: (steps + 1) * arguments.batch_size]
    encoder = SentenceEncoder.from_pretrained(PACKAGED, pooling="mean")
    plain, trained = partial(plain_loop, encoder, rows, arguments), partial(ours, encoder, rows, arguments)
    ways = [
        Way("sentence-transformers trainer", partial(sentence_transformers_trainer, rows, steps, arguments)),
        Way("plain loop, views apart", partial(plain, apart=True)),
        Way("plain loop, one pass", partial(plain, apart=False)),
        Way("simcse_pl, float32", partial(trained, precision="32-true")),
        Way("simcse_pl, padded", partial(trained, length_bucketing=False)),
        Way("simcse_pl, torch's dropout", partial(trained, fast_dropout=False)),
        Way("simcse_pl", trained),
    ]
    if arguments.compile:
        ways.append(Way("simcse_pl, compiled", partial(trained, compile=True)))
    seconds = in_turn(ways, arguments.rounds, warm_up=False)
    views = max(2, len(rows[0]))
    lengths = [len(ids) for row in rows for ids in tokenize(encoder.tokenizer, list(row), arguments.max_length)]
    config = encoder.backbone.config
    share = steps / (steps + 1) * views / len(rows[0])
    operations = 3 * share * operations_of(config, lengths)  # backward is twice forward
    rates = matrix_rates(config)
    notes = [
        f"{steps} steps of {arguments.batch_size} rows of {views} views, up to {arguments.max_length} tokens; "
        f"simcse_pl: {'bf16' if has_bf16('cpu') else 'float32'} where no precision stands beside it",
        f"matrix products alone: {rates['float32']:.0f} GFLOP/s in float32, {rates['bf16']:.0f} in bf16",
    ]
    kind = "triplets" if views > 2 else "sentences"
    amount = steps * arguments.batch_size
    save(
        arguments.out,
        comparison(f"train_{kind}", f"Training on {kind}", "rows/s", seconds, amount, operations, notes),
    )


if __name__ == "__main__":
    main()
