"""A line per encoder: singular values (appendix F), and scores by the number of dimensions (Matryoshka)."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.reports.figures.style import STYLE, figure_of
from simcse_pl.reports.tables.score_tables import shared_tasks, sts_scores
from simcse_pl.results.evaluation_results import Result
from simcse_pl.results.metrics import Aggregation

_SMALLEST = 1e-4  # relative to the largest singular value; smaller ones are not shown


def spectra(results: Sequence[Result]) -> Figure | None:
    """Draw the singular values of each encoder's embedding matrix, divided by the largest (appendix F).

    Returns:
        The figure; None if no result has a spectrum.
    """
    spectra = {result.label: np.array(result.geometry.spectrum) for result in results if result.geometry}
    lines = {
        label: (range(1, len(values) + 1), np.where(values < _SMALLEST, np.nan, values))
        for label, values in spectra.items()
        if len(values)
    }
    return _lines(lines, "index", "singular value / the largest", markers=False) if lines else None


def dimension_curves(results: Sequence[Result], aggregation: Aggregation = "all") -> Figure | None:
    """Draw the STS score of each encoder (Spearman x 100) against the number of dimensions.

    Returns:
        The figure, with the average over the tasks that all of these encoders have in common; None if no result was
        measured at several numbers of dimensions, or there is no such task.
    """
    every = {result.label: result.of_dims() for result in results if result.dims}
    scores = sts_scores([own for result in every.values() for own in result.values()], aggregation)
    tasks = shared_tasks(scores, [task for task in scores if task.partition(" ")[0] in (*STS_TASKS, "sample")])
    if not tasks:
        return None
    means = scores[tasks].mean(axis="columns").dropna()
    lines = {
        label: (sorted(own), [means[own[dim].label] for dim in sorted(own)])
        for label, own in every.items()
        if label in means
    }
    what = tasks[0] if len(tasks) == 1 else f"average of {len(tasks)} STS tasks"
    figure = _lines(lines, "dimensions kept, from the first", f"{what},\nSpearman x 100", markers=True)
    ticks = sorted({dim for dims, _ in lines.values() for dim in dims})
    figure.axes[0].set_xscale("log", base=2)
    figure.axes[0].set_xticks(ticks, [str(dim) for dim in ticks])
    figure.axes[0].minorticks_off()
    return figure


@matplotlib.rc_context(STYLE)
def _lines(
    lines: Mapping[str, tuple[Sequence[int], Sequence[float] | np.ndarray]], x_label: str, y_label: str, markers: bool
) -> Figure:
    """Draw x and y of each label; without markers, y is logarithmic."""
    figure, axes, looks = figure_of([*lines], 0.5)
    axes.set(xlabel=x_label, ylabel=y_label)
    for (x, y), look in zip(lines.values(), looks, strict=True):
        axes.plot(x, y, linewidth=1.3, **look | ({} if markers else {"marker": None}))
    if not markers:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    figure.legend(loc="outside lower center", ncols=2)
    return figure
