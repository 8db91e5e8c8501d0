"""Memory and time of a training step by contrastive batch size, in chunks and in one pass.

    python -m benchmarks.memory

The packaged encoder (6 layers) trains on sentences of the packaged Wikipedia sample, unsupervised. Each row of the
table is a separate process that takes two steps of AdamW; the second is timed. Memory is the peak resident size, and
the same without what was resident before the first step (weights, libraries). Tensors above 1 MB are mapped separately
(MALLOC_MMAP_THRESHOLD_), so that gaps in glibc's heap do not count; `--heap` leaves them on the heap, which is faster.
"""

import argparse
import json
import os
import resource
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from benchmarks.common import PACKAGED, parser, run_json, save, timed, wikipedia_sentences
from simcse_pl.cpu import Speed
from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.optimizer import build_optimizer
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import tracked

MAX_LENGTH = 32  # tokens read per sentence


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

    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    seconds = [timed(step) for _ in range(2)][1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {"rows": rows, "peak": peak, "step": peak - before, "seconds": seconds, "loss": losses[1]}


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__, rounds=False)
    command_line.add_argument("--sizes", type=int, nargs="+", default=[64, 256, 1024, 4096], help="batch sizes")
    command_line.add_argument("--chunk-size", type=int, default=64, help="rows encoded at once")
    command_line.add_argument("--largest-pass", type=int, default=512, help="largest batch tried in one pass")
    command_line.add_argument("--heap", action="store_true", help="leave tensors on glibc's heap")
    command_line.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)  # one row, in this process
    arguments = command_line.parse_args()
    if arguments.one:
        rows, chunk_size = arguments.one
        print(json.dumps(measure(rows, chunk_size or None)))
        return

    environment = {} if arguments.heap else {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    cases = [(size, 0) for size in arguments.sizes if size <= arguments.largest_pass]
    cases += [(size, arguments.chunk_size) for size in arguments.sizes]
    command = ("-m", "benchmarks.memory", "--one")
    frame = pd.DataFrame(run_json(*command, *case, environment=environment) for case in tracked(cases, "measuring"))
    chunked = frame[len(frame) - len(arguments.sizes) :]
    ratio = chunked["peak"].iloc[-1] / chunked["peak"].iloc[0]
    notes = [f"{arguments.sizes[-1]} rows in chunks take {ratio:.2f} times the memory of {arguments.sizes[0]}"]
    if environment:
        notes.append("with glibc's MALLOC_MMAP_THRESHOLD_ (devices.md), a step takes longer than in the other tables")
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
