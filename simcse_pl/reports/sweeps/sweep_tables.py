"""The tables of a sweep: scores over seeds in the layout of the paper's table, with the paper's numbers."""

import math
from dataclasses import dataclass, field

import pandas as pd

from simcse_pl.reports.sweeps.paired import difference, published_difference, published_of
from simcse_pl.reports.sweeps.seed_groups import SCORES, SeedGroups
from simcse_pl.reports.sweeps.sweep_notes import sweep_notes
from simcse_pl.utils.tables import Table

_OF_METHODS = ("dev", "test", "sts")  # the others have no room beside the differences
_DIFFERENCE = "difference"


@dataclass(frozen=True)
class SeedTable(Table):
    """A table with scores over seeds.

    A score is shown as `* 70.25 ± 1.50 (3)` and saved as columns `X`, `X std` and `X n`. A difference is shown as
    `* +0.25 [+0.10, +0.40]` and saved as columns `X`, `X low`, `X high` and `X n`.

    Args:
        best: which cells have a star, by column.
    """

    best: pd.DataFrame = field(default_factory=pd.DataFrame)

    def shown(self) -> pd.DataFrame:
        """Return every cell as text. The number of seeds is left out where it equals that on dev."""
        cells = super().shown()
        for name in [name for name in cells if _DIFFERENCE in name]:
            cells[name] = (self.frame[name] > 0).map({True: "+", False: ""}) + cells[name]
        for score in [name for name in cells if f"{name} n" in cells]:
            count = self.frame[cells.pop(f"{score} n").name]
            if f"{score} std" in cells:
                spread = " ± " + cells.pop(f"{score} std")
            else:
                spread = " [" + cells.pop(f"{score} low") + ", " + cells.pop(f"{score} high") + "]"
            star = self.best.get(score, count < 0)
            counted = (count > 0) & ((score == "dev") | (count != self.frame.get("dev n", -1)))
            cells[score] = star.map({True: "* ", False: ""}) + cells[score]
            cells[score] += spread.where(count > 1, "") + (" (" + count.astype(str) + ")").where(counted, "")
        return cells


def sweep_tables(groups: SeedGroups, name: str = "sweep") -> list[Table]:
    """Return a table with one row per group and, for two options that make a full grid, the grid.

    `name` is the name of the files; `_grid` is appended for the grid.
    """
    frame = pd.DataFrame(_labels(groups))
    for score in SCORES if not groups.compares_methods else _OF_METHODS:
        own = groups.over_seeds(score)
        if score == "dev" or own["count"].any():
            frame[score], frame[f"{score} std"], frame[f"{score} n"] = own["mean"], own["std"], own["count"].astype(int)
            if groups.compares_methods and score != "test":
                frame = frame.join(_differences(groups, score))
        for column, figures in _papers_figures(groups, score).items():
            frame[column] = pd.Series(figures, dtype=float)
    best = _marks(groups, frame)
    title = f"{groups.title}: {groups.score_name}"
    tables: list[Table] = [SeedTable(name, title, frame, _decimals(groups, frame), sweep_notes(groups), best)]
    if len(groups.options) == 2 and not groups.has_rows and len(groups.columns) < 2:
        down, across = (frame[option].unique() for option in groups.options)
        if min(len(down), len(across)) > 1 and len(frame) == len(down) * len(across):
            tables.append(_grid(groups, frame.assign(best=best), f"{name}_grid", f"{title} on dev"))
    return tables


def _marks(groups: SeedGroups, frame: pd.DataFrame) -> pd.DataFrame:
    """Return which cells have a star: the best on dev, or gains beyond the spread of seeds."""
    if groups.compares_methods:
        names = [name for name in frame if f"{name} low" in frame]
        gains = [frame[f"{n} high"] < 0 if groups.lower_is_better else frame[f"{n} low"] > 0 for n in names]
        return pd.DataFrame(dict(zip(names, gains, strict=True)))
    dev = frame["dev"].groupby(pd.Series([group.column for group in groups.groups]), dropna=False)
    best = frame["dev"] == dev.transform("min" if groups.lower_is_better else "max")
    return pd.DataFrame({"dev": best & (dev.transform("count") > 1)})


def _differences(groups: SeedGroups, score: str) -> pd.DataFrame:
    """Return the columns of the differences from SimCSE; beside dev, also the published averages."""
    found = [difference(groups, group, score) for group in groups.groups]
    name = f"{_DIFFERENCE} on {score}"
    columns: dict[str, list[float]] = {
        name: [own.mean for own in found],
        f"{name} low": [own.mean - own.margin for own in found],
        f"{name} high": [own.mean + own.margin for own in found],
        f"{name} n": [own.count for own in found],
    }
    if score == "dev" and groups.comparable:
        scores = [published_of(group) for group in groups.groups]
        columns["published"] = [own.average if own else math.nan for own in scores]
        columns[f"published {_DIFFERENCE}"] = [published_difference(group) for group in groups.groups]
    return pd.DataFrame(columns)


def _labels(groups: SeedGroups) -> dict[str, list[str]]:
    """Return the columns that say what each row is."""
    columns: dict[str, list[str | None]] = {}
    if groups.has_rows:
        columns[groups.paper.varied if groups.paper else "row"] = [group.row for group in groups.groups]
    if len(groups.columns) > 1:
        columns["setting"] = [group.column for group in groups.groups]
    columns |= {name: [group.options.get(name) for group in groups.groups] for name in groups.options}
    if groups.compares_methods:
        columns["setting"] = [group.setting for group in groups.groups]
    columns = columns or {"runs": [group.label for group in groups.groups]}
    return {name: [cell or "–" for cell in cells] for name, cells in columns.items()}


def _papers_figures(groups: SeedGroups, score: str) -> dict[str, list[float | None]]:
    """Return the paper's columns to show beside one of our scores."""
    paper = groups.paper
    if paper is None or not groups.comparable:
        return {}
    rows = [paper.rows.get(group.row or "", {}) for group in groups.groups]
    found: dict[str, list[float | None]] = {}
    if not paper.settings and score in paper.scores:
        found["paper" if score == "dev" else f"paper, {score}"] = [row.get(score) for row in rows]
    elif score == "dev" and groups.known_columns:
        found["paper"] = [row.get(group.column or "") for group, row in zip(groups.groups, rows, strict=True)]
    elif score == "dev":
        found = {f"paper, {setting}": [row.get(setting) for row in rows] for setting in paper.settings}
    return {name: figures for name, figures in found.items() if any(figures)}


def _decimals(groups: SeedGroups, frame: pd.DataFrame) -> dict[str, int]:
    kinds = {"alignment": 3, "uniformity": 3, "sts": 2, "transfer": 2, "paper": 1, "paper,": 1, "published": 2}
    return {name: 0 if name.endswith(" n") else kinds.get(name.split(" ")[0], groups.decimals) for name in frame}


def _grid(groups: SeedGroups, frame: pd.DataFrame, name: str, title: str) -> Table:
    """Return the scores on dev with the first option down and the second across."""
    down, across = groups.options
    grid = frame[[down]].drop_duplicates(ignore_index=True)
    best = pd.DataFrame()
    for value, own in frame.groupby(across, sort=False):
        own = own.set_index(down).loc[grid[down]].reset_index()
        column = f"{across}={value}"
        grid[[column, f"{column} std", f"{column} n"]] = own[["dev", "dev std", "dev n"]]
        best[column] = own["best"]
    return SeedTable(name, title, grid, _decimals(groups, grid), best=best)
