"""The tables of a sweep: our means over seeds, in the layout of the paper's table and beside its figures."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from simcse_pl.reports.sweeps.notes import sweep_notes
from simcse_pl.reports.sweeps.seed_groups import SCORES, SeedGroups
from simcse_pl.reports.tables.score_tables import keys_of
from simcse_pl.reports.tables.spread import MeanStd, SpreadTable
from simcse_pl.utils.tables import Table

_DECIMALS = {"alignment": 3, "uniformity": 3}
_OUR_DECIMALS, _PAPERS_DECIMALS = 2, 1


def sweep_tables(groups: SeedGroups, name: str = "sweep") -> list[Table]:
    """A row a group of runs that differ in the seed alone; then, of two options that make a full grid, the grid.

    Args:
        groups: of a sweep.
        name: of the files; those of the grid have `_grid` behind it.
    """
    ours = _scores(groups)
    columns: dict[str, Sequence[object]] = {**_labels(groups)}
    for score, cells in ours.items():
        columns |= {score: cells, **_papers_figures(groups, score)}
    frame = pd.DataFrame(columns)
    decimals = {c: _DECIMALS.get(c, _OUR_DECIMALS if c in ours else _PAPERS_DECIMALS) for c in frame}
    title = f"{groups.title}: Spearman x 100"
    table = SpreadTable(name, title, frame, decimals, sweep_notes(groups))
    grid = _grid(groups, ours["dev"])
    return [table] if grid is None else [table, SpreadTable(f"{name}_grid", f"{title} on dev", grid)]


def _labels(groups: SeedGroups) -> dict[str, list[str]]:
    """What each row is of, in as many columns as it takes."""
    columns: dict[str, list[str | None]] = {}
    if groups.has_rows:
        columns[groups.paper.varied if groups.paper else "row"] = [group.row for group in groups.groups]
    if len(groups.columns) > 1:
        columns["setting"] = [group.column for group in groups.groups]
    columns |= {name: [group.options.get(name) for group in groups.groups] for name in groups.options}
    columns = columns or {"runs": [group.label for group in groups.groups]}
    return {name: [cell or "–" for cell in cells] for name, cells in columns.items()}


def _scores(groups: SeedGroups) -> dict[str, pd.Series]:
    """What was measured. The best on dev is marked in each column of the paper's; seeds are counted there, and where
    another number of them has a score.
    """
    spreads = {score: groups.spreads(score) for score in SCORES}
    best = _best(groups, spreads["dev"])
    columns = {}
    for score, cells in spreads.items():
        shown = []
        for place, (cell, dev) in enumerate(zip(cells, spreads["dev"], strict=True)):
            counted = score == "dev" or dev is None or (cell is not None and cell.count != dev.count)
            shown.append(cell and replace(cell, best=score == "dev" and place in best, counted=counted))
        if any(shown) or score == "dev":
            columns[score] = pd.Series(shown, dtype=object)
    return columns


def _best(groups: SeedGroups, dev: Sequence[MeanStd | None]) -> set[int]:
    """The places of those that are best in their column of the paper's table, or of all; none where one is alone."""
    means: dict[str | None, dict[int, float]] = {}
    for place, (group, cell) in enumerate(zip(groups.groups, dev, strict=True)):
        if cell is not None:
            means.setdefault(group.column, {})[place] = cell.mean
    return {place for own in means.values() if len(own) > 1 for place in own if own[place] == max(own.values())}


def _papers_figures(groups: SeedGroups, score: str) -> dict[str, pd.Series]:
    """The paper's columns that stand beside one of our scores."""
    paper = groups.paper
    if paper is None:
        return {}
    of_row = [paper.rows.get(group.row or "", {}) for group in groups.groups]
    found: dict[str, list[float | None]] = {}
    if not paper.settings and score in paper.scores:
        found["paper" if score == "dev" else f"paper, {score}"] = [figures.get(score) for figures in of_row]
    elif score == "dev" and groups.known_columns:
        columns = [group.column for group in groups.groups]
        found["paper"] = [figures.get(c or "") for c, figures in zip(columns, of_row, strict=True)]
    elif score == "dev":
        found = {f"paper, {setting}": [figures.get(setting) for figures in of_row] for setting in paper.settings}
    return {name: pd.Series(figures, dtype=float) for name, figures in found.items() if any(figures)}


def _grid(groups: SeedGroups, dev: Sequence[MeanStd | None]) -> pd.DataFrame | None:
    """The first of two options downwards, the second across; None where that is no full grid."""
    if len(groups.options) != 2 or groups.has_rows or len(groups.columns) > 1:
        return None
    down, across = groups.options
    places = [(group.options[down], group.options[across]) for group in groups.groups]
    cells = dict(zip(places, dev, strict=True))
    rows, columns = (keys_of({place[side]: None} for place in places) for side in (0, 1))
    if min(len(rows), len(columns)) < 2 or len(cells) < len(rows) * len(columns):
        return None
    numbers = {f"{across}={c}": pd.Series([cells[r, c] for r in rows], dtype=object) for c in columns}
    return pd.DataFrame({down: rows} | numbers)
