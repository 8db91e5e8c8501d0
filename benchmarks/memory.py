"""Memory: the most that a training step takes, and its time, by the contrastive batch size, in chunks and in one pass.

    python -m benchmarks.memory

The packaged encoder with its 6 layers, unsupervised, on sentences of the packaged Wikipedia sample. Every row of the
table is a process of its own that takes two steps of AdamW; the second is timed. Memory is the most that the process
had resident, and the same without what it had before its first step (weights, libraries). So that it is what tensors
take, and not the gaps that glibc leaves between them on its heap, every tensor above 1 MB is mapped by itself
(MALLOC_MMAP_THRESHOLD_); --heap leaves that to glibc, which is faster.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console
from rich.progress import track

from benchmarks.comparison import PACKAGED, parser, save
from simcse_pl.data.collators import ViewCollator
from simcse_pl.data.prepare.wikipedia import gensim_sample
from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.optimizer import LinearAdamW
from simcse_pl.utils.tables import Table


def measure(rows: int, chunk_size: int | None, max_length: int) -> dict[str, float]:
    """Two steps in this process; memory in MB, seconds of the second."""
    torch.manual_seed(42)
    encoder = SentenceEncoder.from_pretrained(PACKAGED, pooling="cls", head="mlp_train_only")
    module = SimCSEModule(encoder, ContrastiveObjective(), LinearAdamW(), chunk_size=chunk_size)
    optimizer, _ = module.optimizer_settings.build(module.parameters(), total_steps=2)
    sentences = read_rows(gensim_sample())[:rows]
    batch = ViewCollator(encoder.tokenizer, max_length)(sentences)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    for _ in range(2):
        begin = time.perf_counter()
        loss, _ = module.loss(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.perf_counter() - begin
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {"rows": rows, "most": most, "step": most - before, "seconds": seconds, "loss": loss.item()}


def main() -> None:
    """The command line."""
    command_line = parser(__doc__)
    command_line.add_argument(
        "--sizes", type=int, nargs="+", default=[64, 256, 1024, 4096], help="contrastive batch sizes"
    )
    command_line.add_argument("--chunk-size", type=int, default=64, help="rows that are encoded at once")
    command_line.add_argument("--largest-pass", type=int, default=512, help="the most rows that are tried in one pass")
    command_line.add_argument("--max-length", type=int, default=32, help="tokens read of a sentence")
    command_line.add_argument(
        "--heap", action="store_true", help="tensors on glibc's heap, as they are without this benchmark"
    )
    command_line.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)  # a row, in this process
    arguments = command_line.parse_args()
    if arguments.one:
        rows, chunk_size = arguments.one
        print(json.dumps(measure(rows, chunk_size or None, arguments.max_length)))
        return

    environment = os.environ | ({} if arguments.heap else {"MALLOC_MMAP_THRESHOLD_": "1000000"})
    cases = [(size, 0) for size in arguments.sizes if size <= arguments.largest_pass]
    cases += [(size, arguments.chunk_size) for size in arguments.sizes]
    found = []
    for rows, chunk_size in track(cases, "measuring", console=Console(stderr=True), transient=True):
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.memory"]
        command += ["--one", str(rows), str(chunk_size), "--max-length", str(arguments.max_length)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        found.append(json.loads(done.stdout.splitlines()[-1]) | {"chunk_size": chunk_size or None})

    chunked = [one for one in found if one["chunk_size"]]
    ratio = chunked[-1]["most"] / chunked[0]["most"]
    note = f"{chunked[-1]['rows']} rows in chunks take {ratio:.2f} times the memory of {chunked[0]['rows']}"
    rows = [
        {
            "rows, encoded at once": f"{one['rows']}, {one['chunk_size'] or 'all'}",
            "most memory, MB": one["most"],
            "of the step, MB": one["step"],
            "s a step": one["seconds"],
            "rows/s": one["rows"] / one["seconds"],
            "loss": one["loss"],
        }
        for one in found
    ]
    decimals = {"most memory, MB": 0, "of the step, MB": 0, "s a step": 1, "rows/s": 0, "loss": 4}
    table = Table("memory", "Memory by the contrastive batch size", pd.DataFrame(rows), decimals, [note])
    save(arguments.out, table)


if __name__ == "__main__":
    main()
