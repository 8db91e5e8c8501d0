"""Scores by the number of dimensions of vectors that are truncated (Matryoshka)."""

import textwrap
from collections.abc import Sequence
from itertools import cycle

import matplotlib
from matplotlib.figure import Figure

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.reports.figures.style import COLOURS, DASHES, LEGEND_WIDTH, MARKERS, STYLE, WIDTH
from simcse_pl.reports.tables.score_tables import shared_tasks, sts_scores
from simcse_pl.results.evaluation_results import Result
from simcse_pl.results.metrics import Aggregation


@matplotlib.rc_context(STYLE)
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
    figure = Figure((WIDTH, 0.55 * WIDTH), layout="constrained")
    axes = figure.add_subplot()
    means = scores[tasks].mean(axis="columns").dropna()
    shown = {label: own for label, own in every.items() if label in means}
    for (label, own), colour, dashes, marker in zip(shown.items(), cycle(COLOURS), cycle(DASHES), cycle(MARKERS)):
        points = sorted((dim, means[result.label]) for dim, result in own.items())
        axes.plot(
            *zip(*points, strict=True),
            color=colour,
            linestyle=dashes,
            marker=marker,
            label=textwrap.fill(label, LEGEND_WIDTH),
        )
    ticks = sorted({dim for own in shown.values() for dim in own})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(dim) for dim in ticks])
    axes.minorticks_off()
    axes.set_xlabel("dimensions kept, from the first")
    what = tasks[0] if len(tasks) == 1 else f"average of {len(tasks)} STS tasks"
    axes.set_ylabel(f"{what},\nSpearman x 100")  # one line is longer than the axis
    figure.legend(loc="outside lower center", ncols=2)
    return figure
