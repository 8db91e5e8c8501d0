"""The table of metrics on the user's own data."""

from collections.abc import Sequence

import pandas as pd

from simcse_pl.reports.tables.geometry_tables import in_common
from simcse_pl.reports.tables.score_tables import keys_of
from simcse_pl.results.evaluation_results import Result
from simcse_pl.results.metrics import decimals, factor, heading, scale_note
from simcse_pl.utils.tables import Table


def own_data_table(results: Sequence[Result]) -> Table | None:
    """Return the metrics on own data, one row per encoder; None without results."""
    measured = {result.label: result.own for result in results if result.own is not None}
    if not measured:
        return None
    metrics = keys_of(data.metrics for data in measured.values())
    columns = {
        heading(metric, direction=True): [
            factor(metric) * data.metrics.get(metric, float("nan")) for data in measured.values()
        ]
        for metric in metrics
    }
    frame = pd.DataFrame(columns, dtype=float)
    frame.insert(0, "encoder", list(measured))
    where, notes = in_common({label: data.data for label, data in measured.items()})
    scale = scale_note(*metrics)
    title = f"Own data{where}" + f" ({scale})" * bool(scale)
    return Table(
        "own_data", title, frame, {heading(metric, direction=True): decimals(metric) for metric in metrics}, notes
    )
