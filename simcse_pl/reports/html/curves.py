"""The curves of training runs as the page draws them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

_GROUPS = ("val", "geometry", "train", "speed")  # in the order of the page; others follow
_FIRST = ("val/spearman", "val/alignment", "val/uniformity", "train/loss")  # of their group


@dataclass(frozen=True)
class Curves:
    """Metrics that were logged at the same steps.

    Args:
        steps: optimizer steps done, one per point.
        metrics: one value per step by the metric's name; None for NaN and infinity.
    """

    steps: list[int]
    metrics: Mapping[str, list[float | None]]


def curves_of(rows: pd.DataFrame) -> dict[str, Curves]:
    """Return the curves by the prefix of their names: train, val, geometry, speed, test.

    Args:
        rows: see `results.trajectory.read_curves`; without a column `step` there are no curves.
    """
    if "step" not in rows:
        return {}
    found = {}
    names = rows.columns.difference(["epoch", "step"], sort=False)
    for group, metrics in names.groupby(names.map(_prefix)).items():
        own = rows.dropna(subset=["step"]).dropna(subset=metrics, how="all")  # a single NaN is a gap in its curve
        if len(own):
            values = {name: [_rounded(value) for value in own[name]] for name in metrics}
            found[group] = Curves(own["step"].astype(int).tolist(), values)
    return found


def metric_groups(runs: Iterable[Mapping[str, Curves]], monitors: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the metrics to draw by their prefix, the most important first; test scores are in the table of runs.

    Args:
        runs: the curves of each run.
        monitors: the metrics that chose checkpoints, which come first.
    """
    first = [*monitors, *_FIRST]
    names = {
        name
        for run in runs
        for curves in run.values()
        for name, values in curves.metrics.items()
        if _prefix(name) != "test" and any(value is not None for value in values)
    }
    ordered = sorted(names, key=lambda name: (first.index(name) if name in first else len(first), name))
    prefixes = dict.fromkeys([*_GROUPS, *sorted(map(_prefix, names))])
    groups = {prefix: [name for name in ordered if _prefix(name) == prefix] for prefix in prefixes}
    return {prefix: metrics for prefix, metrics in groups.items() if metrics}


def _prefix(metric: str) -> str:
    return metric.partition("/")[0]


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
