"""What the ranks of a training step exchange, and the time that this takes on paper.

    python -m benchmarks.ranks                          every file of conf/method, except CARDS (needs a cased model)
    python -m benchmarks.ranks --only simcse esimcse    some of them

The first table is counted on two CPU ranks, which train the packaged encoder (6 layers, 384 dimensions) as
`benchmarks.methods` does. The second one is computed for BERT-base in float32, from the number of rows and weights.
"""

import itertools
import os
import tempfile
from collections import Counter
from multiprocessing import set_forkserver_preload
from pathlib import Path
from typing import Any

import pandas as pd
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import BertConfig, BertModel

from benchmarks.common import parser, save
from benchmarks.methods import METHODS, config_of, fit
from simcse_pl.utils.files import read_json, write_json
from simcse_pl.utils.tables import Table

KINDS = {"_allgather_base_": "all-gathers", "allreduce_": "all-reduces", "broadcast_": "broadcasts"}
MOVED = {"all-gathers": 1, "all-reduces": 2, "broadcasts": 1}  # how often a ring moves a buffer
LINKS = {"NVLink": 450e9, "Ethernet": 12.5e9}  # bytes per second in each direction and rank: NVLink 4, 100 Gbit/s


class Collectives(TorchDispatchMode, pl.Callback):
    """Count the collectives of the third step, and the bytes of their buffers; before it, DDP arranges its buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.bytes = Counter[str](), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation if it is a collective, except the reductions of DDP's buckets."""
        if func.namespace == "c10d":
            buffers = [[x for x in tree_leaves(part) if isinstance(x, torch.Tensor)] for part in args[:2]]
            kind = KINDS[func._opname]
            if kind != "all-reduces" or buffers[0][0].dim() != 1:
                self.calls[kind] += 1
                self.bytes += MOVED[kind] * max(sum(x.nbytes for x in part) for part in buffers)
        return func(*args, **kwargs or {})

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Begin to count."""
        if trainer.global_step == 2:
            self.__enter__()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """End after the step."""
        if trainer.global_step == 3:
            self.__exit__(None, None, None)


def count(rank: int, folder: str, methods: list[str]) -> None:
    """Train with each method on one of two ranks; the first one writes the counts of all methods to a file."""
    os.environ.update({"LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": "2"})
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    counts = {}
    for method in methods:
        collectives = Collectives()
        fit(config_of(method), 3, collectives, precision="32-true", devices=2, strategy="ddp")
        counts[method] = collectives.calls, collectives.bytes
    if rank == 0:
        write_json(Path(folder) / "counts.json", counts)


def counted(methods: list[str]) -> Table:
    """Return the table of what two ranks exchange."""
    with tempfile.TemporaryDirectory() as folder:
        set_forkserver_preload(["benchmarks.methods"])  # imported once for both
        start_processes(count, (folder, methods), 2, start_method="forkserver")
        counts = read_json(Path(folder) / "counts.json")
    rows = []
    for method, (found, moved) in counts.items():
        calls = {kind: found.get(kind, 0) for kind in MOVED}
        rows.append({"method": method} | calls | {"calls": sum(calls.values()), "KB per rank": moved / 2e3})
    note = "Without the all-reduces of the gradients of the weights. The batch has 32 rows; a ring moves half of it."
    return Table("ranks_counted", "Collectives of a step on two ranks", pd.DataFrame(rows), 0, [note])


def computed() -> Table:
    """Return the table of what a rank sends over a ring in a step of `simcse`, and how long this takes.

    Embeddings are gathered, and their gradients summed; so are those of the weights. Sharded weights (FSDP) are
    gathered twice, and their gradients scattered.
    """
    with torch.device("meta"):
        weights = [*BertModel(BertConfig()).parameters()][::-1]
    buckets: Any = dist._compute_bucket_assignment_by_size(weights, [1 << 20, 25 << 20])  # type: ignore[attr-defined]
    rows = []
    for ranks, size, views in [(1, 512, 3), *itertools.product((8, 64), (64, 512), (2, 3))]:
        share = 4 * (ranks - 1) / ranks
        batch, whole = 3 * share * size * views * 768, share * sum(x.numel() for x in weights)
        row = {"ranks": ranks, "rows": size, "views": views, "calls": (3 + len(buckets[0])) * (ranks > 1)}
        row |= {"batch, MB": batch / 1e6, "weights, MB": 2 * whole / 1e6}
        for way, sent in {"": batch + 2 * whole, ", sharded": batch + 3 * whole}.items():
            row |= {f"{link}{way}, ms": 1e3 * sent / rate for link, rate in LINKS.items()}
        rows.append(row)
    decimals = {name: 1 if name.endswith(("MB", "ms")) else 0 for name in rows[0]}
    notes = ["450 GB/s (NVLink) and 12.5 GB/s (Ethernet) per rank, no latency"]
    return Table("ranks_computed", "A step of BERT-base on paper", pd.DataFrame(rows), decimals, notes)


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__, rounds=False)
    command_line.add_argument("--only", nargs="+", metavar="METHOD", choices=METHODS, help="methods; default: all")
    arguments = command_line.parse_args()
    save(arguments.out, counted(arguments.only or METHODS), computed())


if __name__ == "__main__":
    main()
