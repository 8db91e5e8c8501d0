"""The tables of a sweep: scores over seeds in the layout of the paper's table, with the paper's numbers and notes."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pandas as pd

from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS
from simcse_pl.reports.paper import ablation_names, published
from simcse_pl.reports.sweeps.seed_groups import SCORES, SeedGroups
from simcse_pl.reports.sweeps.sweep_results import Job, differing
from simcse_pl.reports.tables.score_tables import failure_notes
from simcse_pl.utils.tables import Table


@dataclass(frozen=True)
class SeedTable(Table):
    """A table with scores over seeds, shown as `* 70.25 ± 1.50 (3)` and saved as columns `X`, `X std` and `X n`.

    Args:
        best: which cells have a star, by column.
    """

    best: pd.DataFrame = field(default_factory=pd.DataFrame)

    def shown(self) -> pd.DataFrame:
        """Return every cell as text. The number of seeds is left out where it equals that on dev."""
        cells = super().shown()
        for score in [name for name in cells if f"{name} n" in cells]:
            std, count = cells.pop(f"{score} std"), self.frame[cells.pop(f"{score} n").name]
            star = self.best.get(score, count < 0)
            counted = (count > 0) & ((score == "dev") | (count != self.frame.get("dev n", -1)))
            cells[score] = star.map({True: "* ", False: ""}) + cells[score]
            cells[score] += (" ± " + std).where(count > 1, "") + (" (" + count.astype(str) + ")").where(counted, "")
        return cells


def sweep_tables(groups: SeedGroups, name: str = "sweep") -> list[Table]:
    """Return a table with one row per group and, for two options that make a full grid, the grid.

    Args:
        groups: groups of a sweep.
        name: name of the files; `_grid` is appended for the grid.
    """
    frame = pd.DataFrame(_labels(groups))
    for score in SCORES:
        own = groups.over_seeds(score)
        if score == "dev" or own["count"].any():
            frame[score], frame[f"{score} std"], frame[f"{score} n"] = own["mean"], own["std"], own["count"].astype(int)
        for column, figures in _papers_figures(groups, score).items():
            frame[column] = pd.Series(figures, dtype=float)
    dev = frame["dev"].groupby(pd.Series([group.column for group in groups.groups]), dropna=False)
    best = pd.DataFrame(
        {
            "dev": (frame["dev"] == dev.transform("min" if groups.lower_is_better else "max"))
            & (dev.transform("count") > 1)
        }
    )
    title = f"{groups.title}: {groups.score_name}"
    tables: list[Table] = [SeedTable(name, title, frame, _decimals(groups, frame), sweep_notes(groups), best)]
    if len(groups.options) == 2 and not groups.has_rows and len(groups.columns) < 2:
        down, across = (frame[option].unique() for option in groups.options)
        if min(len(down), len(across)) > 1 and len(frame) == len(down) * len(across):
            tables.append(_grid(groups, frame.assign(best=best), f"{name}_grid", f"{title} on dev"))
    return tables


def _labels(groups: SeedGroups) -> dict[str, list[str]]:
    """Return the columns that say what each row is."""
    columns: dict[str, list[str | None]] = {}
    if groups.has_rows:
        columns[groups.paper.varied if groups.paper else "row"] = [group.row for group in groups.groups]
    if len(groups.columns) > 1:
        columns["setting"] = [group.column for group in groups.groups]
    columns |= {name: [group.options.get(name) for group in groups.groups] for name in groups.options}
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
    kinds = {"alignment": 3, "uniformity": 3, "transfer": 2, "paper": 1, "paper,": 1}
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


def sweep_notes(groups: SeedGroups) -> list[str]:
    """Return the notes below a sweep's table: what was run, the paper's setting, warnings, and what is missing."""
    return [*_about_scores(groups), *_about_runs(groups), *_about_paper(groups), *_warnings(groups), *_gaps(groups)]


def _about_scores(groups: SeedGroups) -> list[str]:
    validations = _or(run.validation for run in groups.sweep.runs)
    measured = any("alignment" in run.best for run in groups.sweep.runs)
    plane = "alignment and uniformity are measured on dev; " * measured
    notes = [
        f"dev: {validations}, which selects the checkpoint; {plane}"
        "mean ± sample standard deviation (seeds); *: best on dev"
    ]
    if tasks := groups.transfer_tasks:
        few = f" ({len(tasks)} of {len(TRANSFER_TASKS)} tasks)" * (len(tasks) < len(TRANSFER_TASKS))
        classifier = _or(run.transfer_classifier for run in groups.sweep.runs if run.transfer_dev)
        paper = "; paper: pytorch classifier" * bool(groups.paper and "transfer" in groups.paper.scores)
        notes.append(f"transfer: mean accuracy x 100 on dev of {', '.join(tasks)}{few}, {classifier} classifier{paper}")
    return notes


def _about_runs(groups: SeedGroups) -> list[str]:
    jobs = [job for job in groups.sweep.jobs if job.run]
    seeds = sorted({job.seed for job in jobs if job.seed is not None})
    before = pd.Series([run.score(run.before) for run in groups.sweep.runs]).dropna()
    digits = groups.decimals
    facts = {
        "model": _or(job.choices.get("model") for job in jobs),
        "data": _or(job.choices.get("data") for job in jobs),
        "steps": _or(run.steps for run in groups.sweep.runs),
        "seeds" if len(seeds) > 1 else "seed": ", ".join(map(str, seeds)),
        "dev before training": " to ".join(dict.fromkeys(f"{end:.{digits}f}" for end in (before.min(), before.max())))
        if len(before)
        else "",
    }
    notes = ["; ".join(f"{name} {value}" for name, value in facts.items() if value)]
    if len(groups.groups) == 1 and groups.groups[0].runs["dev"].count() > 1:
        runs = groups.groups[0].runs.sort_values("dev").dropna(subset="dev")
        ends = (f"{runs['dev'].iloc[end]:.{digits}f} (seed {runs['seed'].iloc[end]})" for end in (0, -1))
        notes.append(f"dev from {' to '.join(ends)}")
    return [note for note in notes if note]


def _about_paper(groups: SeedGroups) -> list[str]:
    sweep, paper = groups.sweep, groups.paper
    if paper is None:
        unknown = sweep.table is not None and sweep.table.startswith("table_")
        return [f"warning: unknown table {sweep.table}; tables of the paper: {', '.join(ablation_names())}"] * unknown
    if not groups.comparable:
        return ["the paper's scores are Spearman's correlations on STS-B dev, so they are not shown"]
    if not paper.rows:
        chosen = [
            f"{setting} {model} {size} and {rate:g}"
            for setting, models in published()[sweep.table or ""].items()
            for model, (size, rate) in models.items()
        ]
        return [f"the paper's choice of batch size and learning rate: {', '.join(chosen)}"]
    if not groups.has_rows:
        return ["warning: sweep.row is not set in any job, so the paper's numbers are not shown"]
    about = ["BERT-base", paper.trained, " or ".join(groups.known_columns), "on STS-B dev"]
    notes = [f"paper: {', '.join(filter(None, about))}"]
    if paper.settings and (not groups.columns or groups.known_columns != groups.columns):
        given = f"={', '.join(groups.columns)}" if groups.columns else " is not set"
        notes.append(f"warning: sweep.column{given}; the table's columns: {', '.join(paper.settings)}")
    return notes


def _warnings(groups: SeedGroups) -> list[str]:
    """Return the reasons why scores may not be comparable."""
    notes = []
    validations = pd.Series({job.name: job.run.validation for job in groups.sweep.jobs if job.run}, dtype=str)
    if validations.nunique() > 1:
        jobs = validations.groupby(validations, sort=False).groups
        parts = "; ".join(f"{name} ({', '.join(own)})" for name, own in jobs.items())
        notes.append(f"warning: validated on different data: {parts}")
    if len({run.monitor for run in groups.sweep.runs}) > 1:
        notes.append(f"warning: checkpoints chosen by different metrics: {groups.score_name}")
    counts = [len(group.runs) for group in groups.groups if len(group.runs)]
    if len(counts) > 1 and max(counts) == 1:
        notes.append("warning: one seed per row; scores can differ by points between seeds, so run seed=0,1,2")
    for group in groups.groups:
        for seed, runs in group.runs.groupby("seed"):
            if len(runs) > 1:
                notes.append(f"warning: {group.label}: seed {seed} counts more than once ({', '.join(runs.index)})")
    return notes


def _gaps(groups: SeedGroups) -> list[str]:
    """Return what failed, and which jobs have no score."""
    sweep, varied = groups.sweep, differing(groups.sweep.jobs)
    notes = failure_notes({job.name: job.run.failed for job in sweep.jobs if job.run})

    def label(job: Job) -> str:
        options = " ".join(f"{name}={value}" for name, value in job.options.items() if name in varied)
        return f"{job.name} ({options})" if options else job.name

    found = {
        "failed or unfinished": [label(job) for job in sweep.jobs if not job.run],
        "no score on dev": [label(job) for job in sweep.jobs if job.run and pd.isna(job.run.scores["dev"])],
        "not started": sweep.missing,
        "pruned by the search": [job.name for job in sweep.jobs if job.run and job.run.trial and job.run.trial.pruned],
    }
    return notes + [f"{what}: {'; '.join(jobs)}" for what, jobs in found.items() if jobs]


def _or(values: Iterable[object]) -> str:
    """Join distinct values, without None."""
    return " or ".join(dict.fromkeys(str(value) for value in values if value is not None))
