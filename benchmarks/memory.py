"""Memory and time of a training step by contrastive batch size, in chunks and in one pass.

    python -m benchmarks.memory

The packaged encoder (6 layers) trains on sentences of the packaged Wikipedia sample, unsupervised. Each row of the
table is a separate process that takes two steps of AdamW; the second is timed. Memory is the peak resident size, and
the same without what was resident before the first step (weights, libraries). Tensors above 1 MB are mapped separately
(MALLOC_MMAP_THRESHOLD_), so that gaps in glibc's heap do not count.

    python -m benchmarks.memory --ranks 1 2 4 8

With `--ranks`, the table has the memory of a rank of trainer=fsdp in place. A decoder of 54 million random weights
takes two steps of AdamW on as many CPU processes. The bytes of rank 0, whose parts are the largest, are counted
exactly. Peak is the growth of the resident size since before the model was made.
"""

import argparse
import json
import os
import resource
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader
from transformers import AutoConfig

from benchmarks.common import PACKAGED, QUIET, parser, run_json, save, timed, wikipedia_sentences
from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.backbone import draw_model
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.preparation import build_optimizer
from simcse_pl.speed.cpu import Speed
from simcse_pl.speed.fsdp import FullyShardedStrategy
from simcse_pl.trainer import make_trainer
from simcse_pl.utils.distributed import sum_over_ranks
from simcse_pl.utils.processes import is_first_process
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import tracked

MAX_LENGTH = 32  # tokens read per sentence
_ON_MAPS = {"MALLOC_MMAP_THRESHOLD_": "1000000"}  # for glibc: each large tensor is mapped separately
DECODER = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 9, "num_attention_heads": 8}


def measure(rows: int, chunk_size: int | None) -> dict[str, float]:
    """Take two steps in this process; return memory in MB and the seconds of the second step."""
    torch.manual_seed(42)
    encoder = SentenceEncoder.from_pretrained(PACKAGED, pooling="cls", head="mlp_train_only", max_length=MAX_LENGTH)
    module = SimCSEModule(encoder, ContrastiveLoss(), partial(torch.optim.AdamW, lr=5e-5), chunk_size=chunk_size)
    Speed().apply(encoder.backbone, encoder.groups)
    optimizer = build_optimizer(module.optimizer, list(module.parameters()))
    batch = ViewCollator(encoder.tokenizer, MAX_LENGTH)([(sentence,) for sentence in wikipedia_sentences()[:rows]])
    losses: list[float] = []

    def step() -> None:
        loss = module.loss(module.batch_of(batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())

    before = resident()
    seconds = [timed(step) for _ in range(2)][1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {"rows": rows, "peak": peak, "step": peak - before, "seconds": seconds, "loss": losses[1]}


class CountBytes(pl.Callback):
    """Count the MB of this rank's weights, gradients and optimizer state."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}

    def on_before_optimizer_step(self, trainer: pl.Trainer, module: pl.LightningModule, optimizer: Any) -> None:
        """Count before the gradients are freed, in the second step."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        state = [x for values in optimizer.state.values() for x in values.values() if isinstance(x, torch.Tensor)]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        self.counts = {"weights": _mb(weights), "gradients": _mb(gradients), "optimizer": _mb(state)}


def _mb(tensors: Sequence[Any]) -> float:
    parts = [x.to_local() if hasattr(x, "to_local") else x for x in tensors]
    return sum(part.nbytes for part in parts) / 1e6


def measure_rank(ranks: int) -> dict[str, float]:
    """Take two steps on this process and those that Lightning starts; return the MB of ranks 0 and 1."""
    tokenizer = SentenceEncoder.from_pretrained(PACKAGED, pooling="cls").tokenizer
    batch = ViewCollator(tokenizer, MAX_LENGTH)([(text, text) for text in wikipedia_sentences(8)])
    draw_model(AutoConfig.for_model("llama", **DECODER | {"num_hidden_layers": 1}, vocab_size=9))  # imports its code
    before, count = resident(), CountBytes()
    strategy: Any = FullyShardedStrategy() if ranks > 1 else "auto"
    trainer = make_trainer("32-true", "cpu", strategy=strategy, devices=ranks, max_steps=2, callbacks=[count], **QUIET)
    torch.manual_seed(42)
    with getattr(trainer.strategy, "loading_weights", nullcontext)():
        backbone = draw_model(AutoConfig.for_model("llama", **DECODER, vocab_size=len(tokenizer)))
        encoder = SentenceEncoder(backbone, tokenizer, pooling="mean", max_length=MAX_LENGTH)
    module = SimCSEModule(encoder, ContrastiveLoss(), partial(torch.optim.AdamW, lr=5e-5))
    module.prepare()
    trainer.fit(module, DataLoader([batch] * 2, batch_size=None))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6 - before
    peaks = torch.zeros(ranks)
    peaks[trainer.global_rank] = peak
    return {"ranks": ranks, **count.counts, "first": peak, "others": float(sum_over_ranks(peaks)[1:].mean())}


def resident() -> float:
    """Return the resident size of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def table_of_ranks(ranks: Sequence[int]) -> Table:
    """Return the memory of a rank by the number of ranks."""
    command = ("-m", "benchmarks.memory", "--one-of")
    rows = [run_json(*command, number, environment=_ON_MAPS) for number in tracked(ranks, "measuring")]
    frame = pd.DataFrame(rows)
    frame["sum"] = frame[["weights", "gradients", "optimizer"]].sum(axis=1)
    names = {"first": "peak of rank 0", "others": "peak of others", "sum": "sum of the three"}
    frame = frame[["ranks", "weights", "gradients", "optimizer", "sum", "first", "others"]].rename(columns=names)
    decimals = dict.fromkeys(frame.columns, 0)
    return Table("memory_ranks", "MB of a rank with trainer=fsdp", frame, decimals)


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__, rounds=False)
    command_line.add_argument("--sizes", type=int, nargs="+", default=[64, 256, 1024, 4096], help="batch sizes")
    command_line.add_argument("--chunk-size", type=int, default=64, help="rows encoded at once")
    command_line.add_argument("--largest-pass", type=int, default=512, help="largest batch tried in one pass")
    command_line.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)  # one row, in this process
    command_line.add_argument("--ranks", type=int, nargs="+", help="measure a rank of trainer=fsdp")
    command_line.add_argument("--one-of", type=int, help=argparse.SUPPRESS)  # one row of it, in this process
    arguments = command_line.parse_args()
    if arguments.one_of:
        measured = measure_rank(arguments.one_of)
        if is_first_process():
            print(json.dumps(measured))
        return
    if arguments.ranks:
        save(arguments.out, table_of_ranks(arguments.ranks))
        return
    if arguments.one:
        rows, chunk_size = arguments.one
        print(json.dumps(measure(rows, chunk_size or None)))
        return

    cases = [(size, 0) for size in arguments.sizes if size <= arguments.largest_pass]
    cases += [(size, arguments.chunk_size) for size in arguments.sizes]
    command = ("-m", "benchmarks.memory", "--one")
    frame = pd.DataFrame(run_json(*command, *case, environment=_ON_MAPS) for case in tracked(cases, "measuring"))
    chunked = frame[len(frame) - len(arguments.sizes) :]
    ratio = chunked["peak"].iloc[-1] / chunked["peak"].iloc[0]
    notes = [
        f"{arguments.sizes[-1]} rows in chunks take {ratio:.2f} times the memory of {arguments.sizes[0]}",
        "tensors are mapped apart (MALLOC_MMAP_THRESHOLD_), so steps take longer than elsewhere",
    ]
    columns = {
        "rows, rows per chunk": [f"{rows}, {chunk_size or 'all'}" for rows, chunk_size in cases],
        "peak memory, MB": frame["peak"],
        "added by training, MB": frame["step"],
        "s per step": frame["seconds"],
        "rows/s": frame["rows"] / frame["seconds"],
        "loss": frame["loss"],
    }
    decimals = {"peak memory, MB": 0, "added by training, MB": 0, "s per step": 1, "rows/s": 0, "loss": 4}
    save(arguments.out, Table("memory", "Memory by contrastive batch size", pd.DataFrame(columns), decimals, notes))


if __name__ == "__main__":
    main()
