"""Cosine similarities of pairs by human score (appendix G)."""

import textwrap
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simcse_pl.reports.figures.style import STYLE, WIDTH
from simcse_pl.reports.tables.score_tables import keys_of
from simcse_pl.results.evaluation_results import Result

_BINS = 50


@matplotlib.rc_context(STYLE)
def similarity_densities(results: Sequence[Result]) -> Figure | None:
    """Draw histograms of the cosine similarity of STS pairs by human score, one panel per encoder (appendix G).

    The heights of a panel share one scale. A vertical line marks each median.

    Returns:
        The figure; None if no result has similarities.
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
