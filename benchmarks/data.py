"""Text to batches: time to the first batch and memory, from 10 thousand lines to a million, ours and `datasets.map`.

    python -m benchmarks.data

Sentences of the packaged Wikipedia sample, repeated with a number before each. Every row of the table is a process of
its own, and each is run twice: cold, with an empty cache, and warm. `datasets.map` is the released code's way: it
tokenizes every view of every row once, with attention masks and token types, into a cache of Arrow files. Seconds are
from the file to the first batch of 64 rows, libraries imported before; memory is what the process has more than
before, after 200 batches: its own, and with the pages of mapped files, which the system may take back.

A second table has train.py on the longest file: seconds from the command to its first step, and how many of them are
past the imports: for the configuration, the model, W&B offline, the text, and a validation on the project's sample.
"""

import argparse
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pytorch_lightning as pl
from rich.console import Console
from rich.progress import track
from torch.utils.data import DataLoader

from benchmarks.comparison import PACKAGED, parser, save
from simcse_pl.data.datamodule import SentenceDataModule
from simcse_pl.data.prepare.wikipedia import gensim_sample
from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.models.backbone import load_tokenizer
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.tables import Table

BATCHES, BATCH_SIZE, MAX_LENGTH = 200, 64, 32


def ours(source: Path, cache: Path) -> Iterator[Batch]:
    """The datamodule of train.py."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    data = SentenceDataModule(load_tokenizer(PACKAGED), source, validation=["sample"], max_length=MAX_LENGTH)
    data.setup()
    return iter(data.train_dataloader())


def datasets_map(source: Path, cache: Path) -> Iterator[Any]:
    """As the released train.py reads text, tokenizes each sentence twice and pads in its collator."""
    import datasets

    datasets.disable_progress_bars()
    tokenizer = load_tokenizer(PACKAGED)

    def prepare(examples: dict[str, list[str]]) -> dict[str, list[list[list[int]]]]:
        sentences = examples["text"] * 2
        features = tokenizer(sentences, max_length=MAX_LENGTH, truncation=True)
        total = len(examples["text"])
        return {name: [[ids[i], ids[i + total]] for i in range(total)] for name, ids in features.items()}

    def collate(rows: list[dict[str, list[list[int]]]]) -> Any:
        flat = [{name: ids[view] for name, ids in row.items()} for row in rows for view in range(2)]
        return tokenizer.pad(flat, padding=True, return_tensors="pt")

    text = datasets.load_dataset("text", data_files={"train": str(source)}, cache_dir=str(cache))["train"]
    rows = text.map(prepare, batched=True, remove_columns=["text"])
    return iter(DataLoader(rows, batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate))


WAYS = {"datasets.map": datasets_map, "simcse_pl": ours}


def memory() -> tuple[float, float]:
    """MB that are resident: the process's own, and with pages of mapped files."""
    status = Path("/proc/self/status").read_text()
    own, mapped = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1e3 for name in ("RssAnon", "RssFile"))  # type: ignore[index]
    return own, own + mapped


def measure(way: str, source: Path, cache: Path) -> dict[str, float]:
    """One start, in this process."""
    logging.disable(logging.WARNING)
    if way == "datasets.map":
        import datasets  # noqa: F401 - not to be timed
    before = memory()
    begin = time.perf_counter()
    batches = WAYS[way](source, cache)
    next(batches)
    seconds = time.perf_counter() - begin
    for _ in islice(batches, BATCHES - 1):
        pass
    own, total = (after - was for after, was in zip(memory(), before, strict=True))
    return {"seconds": seconds, "own": own, "total": total}


class FirstStep(pl.Callback):
    """Prints the seconds to the first step: from a time on, and from when the callback is made.

    Args:
        begin: seconds since the epoch.
    """

    def __init__(self, begin: float) -> None:
        self.begins = {"command": begin, "imports": time.time()}

    def on_train_batch_start(self, *_: Any) -> None:
        """Print them, as a line of JSON."""
        print(json.dumps({name: time.time() - begin for name, begin in self.begins.items()}), flush=True)


def to_first_step(source: Path, cache: Path, folder: Path) -> dict[str, float]:
    """Seconds from the command `python train.py`, and from its imports, to its first step."""
    callback = "+callbacks.first_step"
    command = [sys.executable, "-W", "ignore", "train.py", "data=text", f"data.train={source}", "trainer.max_steps=1"]
    command.append(f"{callback}._target_=benchmarks.data.FirstStep")
    own = {"XDG_CACHE_HOME": str(cache), "WANDB_MODE": "offline", "WANDB_SILENT": "true", "SENTEVAL_DIR": ""}
    command += [f"hydra.run.dir={folder}", f"{callback}.begin={time.time()}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | own)
    seconds: dict[str, float] = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"'))
    return seconds


def write_lines(path: Path, lines: int) -> None:
    """So many lines of text, no two alike."""
    sentences = [row[0] for row in read_rows(gensim_sample())]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{i}. {sentences[i % len(sentences)]}\n" for i in range(lines))


def main() -> None:
    """The command line."""
    command_line = parser(__doc__)
    command_line.add_argument("--lines", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    command_line.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # a row, in this process
    arguments = command_line.parse_args()
    if arguments.one:
        way, source, cache = arguments.one
        print(json.dumps(measure(way, Path(source), Path(cache))))
        return
    found, steps = [], []
    cases = [(lines, way, start) for lines in arguments.lines for way in WAYS for start in ("cold", "warm")]
    with tempfile.TemporaryDirectory() as folder:
        for lines, way, start in track(cases, "measuring", console=Console(stderr=True), transient=True):
            source, cache = Path(folder) / f"{lines}.txt", Path(folder) / f"{way}-{lines}"
            if not source.exists():
                write_lines(source, lines)
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.data", "--one", way, str(source), str(cache)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            start_of = {"lines, way, start": f"{lines:,}, {way}, {start}"}
            found.append(start_of | json.loads(done.stdout.splitlines()[-1]))
        longest = Path(folder) / f"{max(arguments.lines)}.txt"
        for start in ("cold", "warm"):
            seconds = to_first_step(longest, Path(folder) / "train", Path(folder) / start)
            steps.append({"lines, start": f"{max(arguments.lines):,}, {start}"} | seconds)
    frame = pd.DataFrame(found).rename(
        columns={"seconds": "s to the first batch", "own": "own memory, MB", "total": "with mapped files, MB"}
    )
    note = f"memory after {BATCHES} batches of {BATCH_SIZE} rows, beyond what was there before"
    table = Table("data", "From text to batches", frame, notes=[note])
    frame = pd.DataFrame(steps).rename(columns={"command": "s from the command", "imports": "s past the imports"})
    save(arguments.out, table, Table("data_first_step", "From the command to the first step", frame))


if __name__ == "__main__":
    main()
