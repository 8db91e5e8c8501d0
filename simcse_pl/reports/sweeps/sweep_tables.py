"""The table of a sweep: scores over seeds in the layout of the paper's table, with the paper's numbers."""

from dataclasses import dataclass, field

import pandas as pd

from simcse_pl.reports.sweeps.seed_groups import SCORES, SeedGroups, differences
from simcse_pl.reports.sweeps.sweep_notes import sweep_notes
from simcse_pl.utils.tables import Table

_OF_METHODS = ("dev", "test", "sts")  # the others have no room beside the differences
_DECIMALS = {"alignment": 3, "uniformity": 3, "sts": 2, "transfer": 2, "paper": 1, "paper,": 1, "published": 2}


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
        for name in [name for name in cells if "difference" in name]:
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


def sweep_table(groups: SeedGroups, name: str = "sweep") -> SeedTable:
    """Return a table with one row per group; `name` is the name of the files."""
    scores = groups.groups
    frame = _labels(groups)
    for score in _OF_METHODS if groups.compares_methods else SCORES:
        if score == "dev" or scores[f"{score} n"].any():
            frame = frame.join(scores[[score, f"{score} std", f"{score} n"]])
            if groups.compares_methods and score != "test":
                frame = frame.join(_differences(groups, score))
        if groups.paper and groups.comparable:
            frame = frame.join(_papers_figures(groups, score))
    shown = {name: 0 if name.endswith(" n") else _DECIMALS.get(name.split(" ")[0], groups.decimals) for name in frame}
    title = f"{groups.title}: {groups.score_name}"
    return SeedTable(name, title, frame, shown, sweep_notes(groups), _marks(groups, frame))


def _labels(groups: SeedGroups) -> pd.DataFrame:
    """Return the columns that say what each row is."""
    scores = groups.groups
    frame = pd.DataFrame(index=scores.index)
    if groups.has_rows:
        frame[groups.paper.varied if groups.paper else "row"] = scores["row"]
    if scores["column"].nunique() > 1:
        frame["setting"] = scores["column"]
    frame[groups.options] = scores[groups.options]
    if groups.compares_methods:
        frame["setting"] = scores["setting"]
    return frame.fillna("–").replace("", "–") if len(frame.columns) else scores[["label"]].set_axis(["runs"], axis=1)


def _marks(groups: SeedGroups, frame: pd.DataFrame) -> pd.DataFrame:
    """Return which cells have a star: the best on dev in each column, or gains beyond the spread of seeds."""
    lower = groups.lower_is_better
    if groups.compares_methods:
        names = [name for name in frame if f"{name} low" in frame]
        return pd.DataFrame({n: frame[f"{n} high"] < 0 if lower else frame[f"{n} low"] > 0 for n in names})
    dev = frame["dev"].groupby(groups.groups["column"])
    best = (frame["dev"] == dev.transform("min" if lower else "max")) & (dev.transform("count") > 1)
    return pd.DataFrame({"dev": best})


def _differences(groups: SeedGroups, score: str) -> pd.DataFrame:
    """Return the columns of the differences from SimCSE; beside dev, also the published averages."""
    gains, name = differences(groups, score), f"difference on {score}"
    columns = {
        name: [gain.mean for gain in gains],
        f"{name} low": [gain.mean - gain.margin for gain in gains],
        f"{name} high": [gain.mean + gain.margin for gain in gains],
        f"{name} n": [gain.count for gain in gains],
    }
    published = ["published", "published difference"] if score == "dev" and groups.comparable else []
    return pd.DataFrame(columns).join(groups.groups[published])


def _papers_figures(groups: SeedGroups, score: str) -> pd.DataFrame:
    """Return the paper's columns to show beside one of our scores."""
    assert groups.paper is not None
    settings, cells = groups.paper.settings, groups.groups
    figures = pd.DataFrame([groups.paper.rows.get(row, {}) for row in cells["row"]], dtype=float)
    if not settings and score in groups.paper.scores:
        figures = figures.reindex(columns=[score]).set_axis(["paper" if score == "dev" else f"paper, {score}"], axis=1)
    elif score == "dev" and groups.columns:
        of_column = [row.get(column) for row, column in zip(figures.to_dict("records"), cells["column"], strict=True)]
        figures = pd.DataFrame({"paper": of_column}, dtype=float)
    elif score == "dev":
        figures = figures.reindex(columns=settings).add_prefix("paper, ")
    else:
        return pd.DataFrame(index=cells.index)
    return figures.dropna(axis="columns", how="all")
