"""Text to batches: time to the first batch and memory of simcse_pl and `datasets.map`, up to a million lines.

    python -m benchmarks.data
    python -m benchmarks.data --many 2000000 10000000

The lines are sentences of the packaged Wikipedia sample, repeated, with a number before each. Each row of the table is
a separate process, with an empty cache (cold) and once more (warm). `datasets.map` is the way of the released code:
it tokenizes every view of every row once, with attention masks and token types, into a cache of Arrow files. Seconds
are from the file to the first batch, without imports. Memory is what the process has gained after 200 batches: its
own, and with the pages of mapped files, which the system can reclaim.

`--many` measures simcse_pl on many lines, of up to 100 characters, in CPU seconds of all its processes: a start that
tokenizes in two further processes, and a warm one.
"""

import argparse
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
from torch.utils.data import DataLoader

from benchmarks.common import PACKAGED, parser, run_json, save, wikipedia_sentences
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.models.sources import load_tokenizer
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import tracked

BATCHES, BATCH_SIZE, MAX_LENGTH = 200, 64, 32


def simcse_pl(source: Path, cache: Path, **options: Any) -> Iterator[Any]:
    """Return the batches of train.py's datamodule."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    scored = {"evaluators": {"sts": ScoredPairs}, "validation": ["sample"]}
    data = SentenceDataModule(load_tokenizer(PACKAGED), source, max_length=MAX_LENGTH, **scored, **options)
    data.setup()
    return iter(data.train_dataloader())


def datasets_map(source: Path, cache: Path) -> Iterator[Any]:
    """Return batches like the released train.py: each sentence is tokenized twice, and padded in the collator."""
    datasets.disable_progress_bars()
    tokenizer = load_tokenizer(PACKAGED)

    def prepare(examples: dict[str, list[str]]) -> dict[str, list[list[list[int]]]]:
        total = len(examples["text"])
        features = tokenizer(examples["text"] * 2, max_length=MAX_LENGTH, truncation=True)
        return {name: [[ids[i], ids[i + total]] for i in range(total)] for name, ids in features.items()}

    def collate(rows: list[dict[str, list[list[int]]]]) -> Any:
        flat = [{name: ids[view] for name, ids in row.items()} for row in rows for view in range(2)]
        return tokenizer.pad(flat, padding=True, return_tensors="pt")

    text = datasets.load_dataset("text", data_files={"train": str(source)}, cache_dir=str(cache))["train"]
    rows = text.map(prepare, batched=True, remove_columns=["text"])
    return iter(DataLoader(rows, batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate))


WAYS = {"datasets.map": datasets_map, "simcse_pl": simcse_pl}


def memory() -> tuple[float, float]:
    """Return the resident MB of this process: its own, and with pages of mapped files."""
    found = dict(re.findall(r"(\w+):\s+(\d+)", Path("/proc/self/smaps_rollup").read_text()))
    own, total = (int(found[name]) / 1e3 for name in ("Private_Dirty", "Rss"))
    return own, total


def seconds_now(of_cpu: bool) -> float:
    """Return the time of a clock, or the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4]) if of_cpu else time.perf_counter()


def measure(way: str, source: Path, cache: Path) -> dict[str, float]:
    """Read the batches in this process, and return seconds, which are those of the CPU for the way `many`, and MB."""
    logging.disable(logging.WARNING)
    many = way == "many"
    before, begin = memory(), seconds_now(many)
    batches = simcse_pl(source, cache, tokenizing_processes=2) if many else WAYS[way](source, cache)
    next(batches)
    seconds = seconds_now(many) - begin
    for _ in islice(batches, BATCHES - 1):
        pass
    own, total = (after - was for after, was in zip(memory(), before, strict=True))
    name = "CPU s to the first batch" if many else "s to the first batch"
    return {name: seconds, "own memory, MB": own, "with mapped files, MB": total}


def starts(way: str, lines: int) -> Iterator[dict[str, float]]:
    """Yield the measurements of a cold and of a warm start with distinct lines of text."""
    sentences = [text for text in wikipedia_sentences() if way != "many" or len(text) <= 100]
    with tempfile.TemporaryDirectory() as folder:
        source, cache = Path(folder, "lines.txt"), Path(folder, "cache")
        with source.open("w", encoding="utf-8") as file:
            file.writelines(f"{i}. {sentences[i % len(sentences)]}\n" for i in range(lines))
        for _ in range(2):
            yield run_json("-m", "benchmarks.data", "--one", way, source, cache)


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__, rounds=False)
    command_line.add_argument("--lines", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    command_line.add_argument("--many", type=int, nargs="+", help="numbers of lines, many, for simcse_pl alone")
    command_line.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # one row, in this process
    arguments = command_line.parse_args()
    if arguments.one:
        way, source, cache = arguments.one
        print(json.dumps(measure(way, Path(source), Path(cache))))
        return
    rows: list[dict[str, Any]] = []
    if arguments.many:
        for lines in arguments.many:
            for start, row in zip(("cold, 2 further processes", "warm"), starts("many", lines), strict=True):
                rows.append({"lines, start": f"{lines:,}, {start}", **row})
        save(arguments.out, Table("data_many", "From many lines to batches", pd.DataFrame(rows)))
        return
    for lines, way in tracked([*product(arguments.lines, WAYS)], "measuring"):
        for start, row in zip(("cold", "warm"), starts(way, lines), strict=True):
            rows.append({"lines, way, start": f"{lines:,}, {way}, {start}", **row})
    note = f"cold: an empty cache; memory: growth after {BATCHES} batches of {BATCH_SIZE} rows; mapped: reclaimable"
    save(arguments.out, Table("data", "From text to batches", pd.DataFrame(rows), notes=[note]))


if __name__ == "__main__":
    main()
