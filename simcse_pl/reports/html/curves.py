"""The curves of a training run, as a page draws them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from simcse_pl.reports.tables.score_tables import keys_of
from simcse_pl.results.run_files import VALIDATION_PREFIXES

_ROWS_ALONE = ("epoch", "step")
_GROUPS = ("val", "geometry", "train", "speed")
_FIRST = ("val/spearman", "val/alignment", "val/uniformity", "train/loss")
_DIGITS = 6


@dataclass(frozen=True)
class Curves:
    """Metrics that were logged together.

    Args:
        steps: optimizer steps done, a point each.
        metrics: values by the metric's name, as many as there are steps; None where a value is no number.
    """

    steps: list[int]
    metrics: Mapping[str, list[float | None]]


@dataclass(frozen=True)
class MetricGroup:
    """The charts that stand together.

    Args:
        name: what their metrics begin with.
        metrics: a chart each.
    """

    name: str
    metrics: list[str]

    @property
    def noisy(self) -> bool:
        """Whether a point is of one batch alone, so that smoothing helps."""
        return not _of_validation(self.name)


def curves_of(rows: pd.DataFrame) -> dict[str, Curves]:
    """The curves by what their metrics begin with: train, val, geometry, speed, test.

    Args:
        rows: see `results.read_curves`; without a column of steps there are no curves.
    """
    if "step" not in rows:
        return {}
    groups: dict[str, list[str]] = {}
    for name in rows.columns:
        if name not in _ROWS_ALONE:
            groups.setdefault(_group(name), []).append(name)
    found = {}
    for group, names in groups.items():
        own = rows.dropna(subset=["step"]).dropna(subset=names, how="all")  # one that is no number is among others
        if len(own):
            metrics = {name: [_shown(value) for value in own[name]] for name in names}
            found[group] = Curves(own["step"].astype(int).tolist(), metrics)
    return found


def metric_groups(runs: Iterable[Mapping[str, Curves]]) -> list[MetricGroup]:
    """Return the metrics to draw, in the order of their importance; test scores are in the table of runs."""
    metrics = keys_of(
        {name: None for curves in own.values() for name, values in curves.metrics.items() if _is_drawn(name, values)}
        for own in runs
    )
    groups = keys_of({_group(name): None} for name in metrics)
    return [
        MetricGroup(group, sorted((name for name in metrics if _group(name) == group), key=_rank))
        for group in sorted(groups, key=lambda name: (_place(name, _GROUPS), name))
    ]


def _group(metric: str) -> str:
    return metric.partition("/")[0]


def _of_validation(group: str) -> bool:
    return f"{group}/" in VALIDATION_PREFIXES


def _rank(metric: str) -> tuple[int, str]:
    return _place(metric, _FIRST), metric


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def _is_drawn(metric: str, values: Sequence[float | None]) -> bool:
    return _group(metric) != "test" and any(value is not None for value in values)


def _shown(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
