"""The notes below the table of a sweep."""

from collections.abc import Iterable, Sequence

import pandas as pd

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS
from simcse_pl.reports.methods import published_score, setting_of
from simcse_pl.reports.paper import published
from simcse_pl.reports.sweeps.seed_groups import CONFIDENCE, METHOD, SeedGroups, differences
from simcse_pl.reports.sweeps.sweep_results import differing
from simcse_pl.reports.tables.score_tables import failure_notes


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
        notes.append(f"transfer: mean accuracy x 100 on dev of {tasks}, {classifier} classifier; paper: pytorch")
    before = pd.Series([run.score(run.before) for run in runs]).agg(["min", "max"]).dropna()
    facts = {
        "model": _or(job.choices.get("model") for job in jobs),
        "data": _or(job.choices.get("data") for job in jobs),
        "steps": _or(run.steps for run in runs),
        "seeds": ", ".join(sorted(groups.runs["seed"].unique(), key=lambda seed: (len(seed), seed))),
        "dev before training": " to ".join(dict.fromkeys(f"{end:.{groups.decimals}f}" for end in before)),
    }
    return [*notes, "; ".join(f"{name} {value}" for name, value in facts.items() if value)]


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
