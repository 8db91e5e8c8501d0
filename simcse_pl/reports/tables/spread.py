"""Scores over seeds, and tables of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import pandas as pd

from simcse_pl.utils.tables import Table


@dataclass(frozen=True)
class MeanStd:
    """A score over seeds; formatted as `70.25 ± 1.50 (3)`, with a star before it where it is the best.

    Args:
        mean: over the seeds.
        deviation: the sample's standard deviation; None of one seed, which has none.
        count: of the seeds.
        best: of all that it is shown with.
        counted: whether the count is shown.
    """

    mean: float
    deviation: float | None
    count: int
    best: bool = False
    counted: bool = False

    def __format__(self, spec: str) -> str:
        deviation = "" if self.deviation is None else f" ± {self.deviation:{spec}}"
        return "* " * self.best + f"{self.mean:{spec}}{deviation}" + f" ({self.count})" * self.counted


def spread(values: Sequence[float]) -> MeanStd | None:
    """Mean and deviation of a score; None where there is none."""
    if not values:
        return None
    return MeanStd(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class SpreadTable(Table):
    """A table with columns of spreads: for readers one column each, in CSV and JSON mean, deviation and count."""

    def csv(self) -> str:
        """Numbers in full precision, nothing where there is none."""
        return self._unfolded().csv()

    def json(self) -> str:
        """Title, rows and notes; numbers in full precision, null where there is none."""
        return self._unfolded().json()

    def numeric(self, column: str) -> bool:
        """Whether a column is of numbers or spreads, which stand to the right."""
        return super().numeric(column) or self._holds_spreads(column)

    def _holds_spreads(self, column: str) -> bool:
        return any(isinstance(cell, MeanStd) for cell in self.frame[column])

    def _unfolded(self) -> Table:
        columns: dict[str, pd.Series] = {}
        for name, cells in self.frame.items():
            if not self._holds_spreads(name):
                columns[name] = cells
                continue
            spreads = [cell if isinstance(cell, MeanStd) else None for cell in cells]
            columns[name] = pd.Series([own and own.mean for own in spreads], dtype=float)
            columns[f"{name} std"] = pd.Series([own and own.deviation for own in spreads], dtype=float)
            columns[f"{name} n"] = pd.Series([own.count if own else 0 for own in spreads], dtype=int)
        return Table(self.name, self.title, pd.DataFrame(columns), notes=self.notes)
