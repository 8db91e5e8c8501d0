"""The table of a sweep: scores over seeds in the layout of the paper's table, with the paper's numbers and notes."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pandas as pd

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS
from simcse_pl.reports.methods import published_score, setting_of
from simcse_pl.reports.paper import published
from simcse_pl.reports.sweeps.seed_groups import CONFIDENCE, METHOD, SCORES, SeedGroups, differences
from simcse_pl.reports.sweeps.sweep_results import Job, differing
from simcse_pl.reports.tables.score_tables import failure_notes
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
        given: the options that were given to all jobs, a column of the CSV.
    """

    best: pd.DataFrame = field(default_factory=pd.DataFrame)
    given: str = ""

    def csv(self) -> str:
        """Return the frame and the given options as CSV."""
        return str(self.frame.assign(given=self.given).to_csv(index=False))

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
    return SeedTable(name, title, frame, shown, sweep_notes(groups), _marks(groups, frame), groups.given)


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


def sweep_notes(groups: SeedGroups) -> list[str]:
    """Return the notes below a sweep's table: what was run, the paper's setting, warnings, and what failed."""
    methods = _about_methods(groups) if groups.compares_methods else []
    paper = [_about_paper(groups)] if groups.paper else []
    return [*_about_scores(groups), *paper, *methods, *_warnings(groups), *_failures(groups)]


def _about_scores(groups: SeedGroups) -> list[str]:
    """Return what was measured and run."""
    runs, jobs = groups.sweep.runs, [job for job in groups.sweep.jobs if job.run]
    best = "" if groups.compares_methods else "; *: best on dev"
    selects = f"dev: {_or(run.validation for run in runs)}, which selects the checkpoint"
    notes = [f"{selects}; mean ± sample standard deviation (seeds){best}"]
    if groups.sts_tasks:
        notes.append(f"sts: mean Spearman x 100 on test of {_tasks(groups.sts_tasks, STS_TASKS)}")
    if groups.transfer_tasks:
        classifier = _or(run.transfer_classifier for run in runs if run.transfer_dev)
        tasks = _tasks(groups.transfer_tasks, TRANSFER_TASKS)
        scored = f"transfer: mean accuracy x 100 on dev of {tasks}, {classifier} classifier"
        notes.append(f"{scored}; paper: pytorch classifier")
    before = pd.Series([run.score(run.before) for run in runs]).agg(["min", "max"]).dropna()
    facts = {
        "model": _or(job.choices.get("model") for job in jobs),
        "data": _or(map(_data_of, jobs)),
        "steps": _or(run.steps for run in runs),
        "seeds": ", ".join(sorted(groups.runs["seed"].unique(), key=lambda seed: (len(seed), seed))),
        "dev before training": " to ".join(dict.fromkeys(f"{end:.{groups.decimals}f}" for end in before)),
    }
    notes.append("; ".join(f"{name} {value}" for name, value in facts.items() if value))
    return [*notes, f"given: {groups.given}"] if groups.given else notes


def _data_of(job: Job) -> str | None:
    """Return the files that a job was trained on and their rows; of older results, the choice of the group."""
    files = job.run.settings.get("data") if job.run else None
    return re.sub(r"(?<!\S)/[^;]*/", "", files) if files else job.choices.get("data")  # without absolute folders


def _tasks(tasks: Sequence[str], all_tasks: Sequence[str]) -> str:
    return ", ".join(tasks) + f" ({len(tasks)} of {len(all_tasks)} tasks)" * (len(tasks) < len(all_tasks))


def _about_paper(groups: SeedGroups) -> str:
    """Return the setting of the paper's numbers."""
    paper = groups.paper
    assert paper is not None
    if not groups.comparable:
        return "the paper's scores are Spearman's correlations on STS-B dev, so they are not shown"
    if paper.rows:
        return "paper: " + ", ".join(filter(None, ["BERT-base", paper.trained, _or(groups.columns), "on STS-B dev"]))
    chosen = [
        f"{setting} {model} {size} and {rate:g}"
        for setting, models in published()[groups.sweep.table or ""].items()
        for model, (size, rate) in models.items()
    ]
    return f"the paper's choice of batch size and learning rate: {', '.join(chosen)}"


def _about_methods(groups: SeedGroups) -> list[str]:
    """Return what the methods are compared with, what a star means, and of which model the published scores are."""
    notes, scores = [], groups.groups
    counts = pd.Series([gain.count for gain in differences(groups, "dev")], index=scores.index)
    if counts.any():
        simcse = scores[scores["is_baseline"]]
        baselines = _or(f"{m} ({s})" for m, s in simcse[[METHOD, "setting"]].itertuples(index=False, name=None))
        notes.append(
            f"difference: from {baselines} with the same seed, mean [{CONFIDENCE:.0%} t-interval]; *: a gain whose "
            f"interval excludes 0; about 1 in {2 / (1 - CONFIDENCE):.0f} methods without any effect gets a star"
        )
    if alone := scores["label"][(counts == 0) & ~scores["is_baseline"]].tolist():
        notes.append(f"no difference, because SimCSE with the same setting and seeds is missing: {'; '.join(alone)}")
    known = [
        published_score(job.value(METHOD), setting_of(job.choices), job.choices.get("model"))
        for job in groups.sweep.jobs
    ]
    if groups.comparable and any(known):
        notes.append(f"published: STS average on test, {_or(score.model for score in known if score)}")
    for setting, data in groups.runs.groupby("setting")["trained on"]:
        if data.nunique() > 1:
            notes.append(f"warning: {setting} methods were trained on different data: {_or(data)}")
    return notes


def _warnings(groups: SeedGroups) -> list[str]:
    """Return the reasons why scores may not be comparable."""
    notes, runs = [], groups.runs
    if len(validations := {run.validation for run in groups.sweep.runs}) > 1:
        notes.append(f"warning: validated on different data: {', '.join(sorted(validations))}")
    if len({run.monitor for run in groups.sweep.runs}) > 1:
        notes.append(f"warning: checkpoints chosen by different metrics: {groups.score_name}")
    seeds = runs.groupby([*groups.keys, "seed"], sort=False).size()
    if len(runs) > 1 and runs.groupby(groups.keys).size().max() == 1:
        notes.append("warning: one seed per row; scores can differ by points between seeds, so run seed=0,1,2")
    for key, count in seeds[seeds > 1].items():
        notes.append(f"warning: {', '.join(filter(None, key))}: this seed counts {count} times")
    return notes


def _failures(groups: SeedGroups) -> list[str]:
    """Return which tasks and jobs have no scores."""
    jobs, varied = groups.sweep.jobs, differing(groups.sweep.jobs)
    notes = failure_notes({job.name: job.run.failed for job in jobs if job.run})
    for state in ("failed or unfinished", "pruned by the search"):
        names = [
            f"{job.name} ({' '.join(f'{name}={value}' for name, value in job.options.items() if name in varied)})"
            for job in jobs
            if job.state == state
        ]
        notes += [f"{state}: {'; '.join(names)}"] * bool(names)
    return notes


def _or(values: Iterable[object]) -> str:
    """Join distinct values, without None."""
    return " or ".join(dict.fromkeys(str(value) for value in values if value is not None))
