"""Figures of encoders and of training runs, as in the paper."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simcse_pl.evaluation.results import Aggregation, Result
from simcse_pl.evaluation.sts import STS_TASKS
from simcse_pl.lab.encoder_tables import shared_tasks, sts_scores
from simcse_pl.lab.latex import latex
from simcse_pl.lab.read_runs import Run, keys_of
from simcse_pl.lab.style import STYLE, WIDTH, figure_files, figure_of
from simcse_pl.results import factor, score_name
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.tables import Table

_MAX_MARKERS = 17  # per path
_SMALLEST = 1e-4  # relative to the largest singular value; smaller ones are not shown
_BINS = 50


def encoder_plane(results: Sequence[Result], aggregation: Aggregation = "all") -> Figure | None:
    """Draw each encoder as a point, coloured by its average STS score (Spearman x 100).

    The average is over the STS tasks that all encoders with STS scores have in common. Encoders without STS scores are
    hollow points. Return None if no result has alignment and uniformity.
    """
    measured = {r.label: (r.geometry.uniformity, r.geometry.alignment) for r in results if r.geometry}
    points = pd.DataFrame.from_dict(measured, "index", columns=["uniformity", "alignment"]).dropna()
    if points.empty:
        return None
    scores = sts_scores([result for result in results if result.label in points.index], aggregation)
    tasks = shared_tasks(scores, STS_TASKS)
    points["score"] = scores[tasks].mean(axis="columns", skipna=False)
    texts = [label + ("" if np.isnan(score) else f" ({score:.1f})") for label, score in points["score"].items()]
    paths = {text: points.iloc[[number]] for number, text in enumerate(texts)}
    what = f"average of {len(tasks)} STS tasks" if len(tasks) > 1 else "".join(tasks)
    return _plane(paths, f"{what} (Spearman x 100)")


def run_plane(runs: Sequence[Run]) -> Figure | None:
    """Draw the paths of training runs from start (hollow) to end (large), coloured by the monitored metric on dev.

    Return None without runs that have alignment and uniformity.
    """
    paths, names = {}, list[str]()
    for run in runs:
        if len(points := run.points):
            points["score"] *= factor(run.monitor)
            paths[f"{run.label} ({points['step'].iloc[-1]} steps)"] = points
            names.append(score_name(run.monitor))
    scale = f"dev ({' or '.join(dict.fromkeys(names))})"
    return _plane(paths, scale, "hollow: start of training; large: end") if paths else None


@matplotlib.rc_context(STYLE)
def _plane(paths: Mapping[str, pd.DataFrame], scale: str, legend: str | None = None) -> Figure:
    """Draw paths with the columns uniformity, alignment and score; a path may be a point."""
    figure, looks = figure_of([*paths], 0.72, more=bool(legend))
    axes = figure.add_subplot()
    axes.set(xlabel="uniformity (lower is better)", ylabel="alignment (lower is better)")
    scores = pd.concat([path["score"] for path in paths.values()]).dropna()
    margin = 1.0 if len(scores) and scores.max() - scores.min() < 1 else 0.0
    norm = Normalize(scores.min() - margin, scores.max() + margin) if len(scores) else Normalize()
    for path, look in zip(paths.values(), looks, strict=True):
        x, y = path["uniformity"].to_numpy(), path["alignment"].to_numpy()
        dots: dict[str, Any] = {"marker": look["marker"], "edgecolors": "black"}
        line = look | {"color": "0.35", "linestyle": look["linestyle"] if len(path) > 1 else "none"}
        axes.plot(x, y, linewidth=1, markersize=3.5, **line)
        shown = np.unique(np.linspace(0, len(path) - 1, _MAX_MARKERS).round().astype(int))
        sizes, colours = np.where(shown == len(path) - 1, 45, 18), path["score"].to_numpy()[shown]
        axes.scatter(x[shown], y[shown], sizes, colours, norm=norm, plotnonfinite=True, zorder=3, **dots)
        if len(path) > 1:
            axes.scatter(x[:1], y[:1], 45, "white", zorder=4, **dots)
    axes.margins(0.12)
    if len(scores):
        figure.colorbar(ScalarMappable(norm, "viridis"), ax=axes, label=scale, aspect=30, ticks=MaxNLocator(6))
    figure.legend(loc="outside lower center", ncols=2, title=legend)
    return figure


@matplotlib.rc_context(STYLE)
def spectra(results: Sequence[Result]) -> Figure | None:
    """Draw the singular values of each encoder's embedding matrix, divided by the largest (appendix F).

    Return None if no result has a spectrum.
    """
    spectra = {result.label: np.array(result.geometry.spectrum) for result in results if result.geometry}
    lines = {label: np.where(values < _SMALLEST, np.nan, values) for label, values in spectra.items() if len(values)}
    if not lines:
        return None
    figure, looks = figure_of([*lines], 0.5)
    axes = figure.add_subplot()
    axes.set(xlabel="index", ylabel="singular value / the largest", yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    for values, look in zip(lines.values(), looks, strict=True):
        axes.plot(range(1, len(values) + 1), values, linewidth=1.3, **look | {"marker": None})
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@matplotlib.rc_context(STYLE)
def similarity_densities(results: Sequence[Result]) -> Figure | None:
    """Draw histograms of the cosine similarity of STS pairs by human score, one panel per encoder (appendix G).

    The heights of a panel share one scale. A vertical line marks each median. Without similarities, return None.
    """
    shown = {r.label: r.geometry.similarities for r in results if r.geometry and any(r.geometry.similarities.values())}
    if not shown:
        return None
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    figure = Figure((WIDTH if columns > 1 else 0.6 * WIDTH, 2.2 * rows + 0.3), layout="constrained")
    bands = keys_of(shown.values())
    lowest = min(value for similarities in shown.values() for values in similarities.values() for value in values)
    edges = np.linspace(min(0, np.floor(10 * lowest) / 10), 1, _BINS + 1)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
    for axes, (label, similarities) in zip(grid, shown.items(), strict=False):
        _ridges(axes, [np.clip(similarities.get(band, []), edges[0], 1) for band in bands], edges)
        axes.set_title(textwrap.fill(label, 84 // max(2, columns)))
    for axes in grid[len(shown) :]:
        axes.remove()
    grid[0].set_yticks(range(len(bands)), [band.replace("-", "–") for band in bands])
    figure.supxlabel("cosine similarity", fontsize=8)
    figure.supylabel("human score", fontsize=8)
    return figure


def _ridges(axes: Axes, bands: Sequence[np.ndarray], edges: np.ndarray) -> None:
    """Draw one histogram per band above each other, the lowest score at the bottom."""
    densities = [np.histogram(values, edges)[0] / max(1, len(values)) for values in bands]
    highest = max(density.max() for density in densities)
    shades = matplotlib.colormaps["viridis"](np.linspace(0.15, 0.95, len(bands)))
    for base, (values, density, shade) in enumerate(zip(bands, densities, shades, strict=True)):
        heights = base + 0.85 * density / highest
        axes.stairs(heights, edges, baseline=base, fill=True, facecolor=shade, edgecolor="black", linewidth=0.6)
        axes.axhline(base, color="black", linewidth=0.4)
        axes.vlines([np.median(values)] if len(values) else [], base, base + 0.85, color="black", linewidth=0.9)
    axes.set_xlim(edges[0], edges[-1])
    axes.tick_params(axis="y", length=0)


def encoder_figures(
    results: Sequence[Result], runs: Sequence[Run] = (), aggregation: Aggregation = "all"
) -> dict[str, Figure]:
    """Return every figure that has content, by name: of encoders with different labels, and of training runs."""
    figures = {
        "alignment_uniformity": encoder_plane(results, aggregation),
        "training_paths": run_plane(runs),
        "spectra": spectra(results),
        "similarities": similarity_densities(results),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def save(
    folder: str | Path, tables: Sequence[Table], figures: Mapping[str, Figure], data: Mapping[str, pd.DataFrame] = {}
) -> list[Path]:
    """Write tables (md, csv, tex), figures (png, svg, pdf) and data (csv) atomically, and return their paths."""
    files = {f"{name}.csv": frame.to_csv(index=False).encode() for name, frame in data.items()}
    for table in tables:
        forms = {"md": table.markdown(), "csv": table.frame.to_csv(index=False), "tex": latex(table)}
        files |= {f"{table.name}.{ending}": text.encode() for ending, text in forms.items()}
    for name, figure in figures.items():
        files |= figure_files(name, figure)
    with atomic_write(Path(folder)) as new:
        for name, content in files.items():
            (new / name).write_bytes(content)
    return [Path(folder, name) for name in files]
