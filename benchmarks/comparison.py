"""Compare several ways to do the same work: rates, ratios with their range, and a figure."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from simcse_pl.reports.figures.style import COLOURS, STYLE, WIDTH, figure_files
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import tracked


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turn(ways: Mapping[str, Callable[[], float]], rounds: int, warm_up: bool = True) -> dict[str, list[float]]:
    """Return the seconds of each way in each round, after an additional round to warm up.

    The ways take turns, so that other load on the machine affects all of them.

    Args:
        ways: functions by name that do the work once and return the seconds it took.
        rounds: number of rounds.
        warm_up: run one round more, which is not counted.
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
        name: name of the files.
        title: title of the table.
        unit: unit of the rate, such as `sentences/s`.
        seconds: see `in_turn`.
        amount: units per round.
        operations: floating-point operations per round, without padding.
        notes: notes below the table.
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
    note = f"{len(first)} round{'s' * (len(first) > 1)}"
    return Table(name, title, pd.DataFrame(rows), notes=[*notes, note])


def save(folder: Path, *tables: Table) -> None:
    """Print tables, and write JSON, Markdown and a figure of each."""
    for table in tables:
        Console().print(table.printed())
        files = table.files() | figure_files(table.name, _bars(table))
        with atomic_write(folder) as new:
            for name, content in files.items():
                if name.endswith((".json", ".md", ".png")):
                    (new / name).write_bytes(content)


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
        axes.margins(x=0.12)
    return figure
