"""The notes below the tables of a sweep."""

from collections.abc import Iterable, Sequence

import pandas as pd

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS
from simcse_pl.reports.paper import published
from simcse_pl.reports.sweeps.paired import CONFIDENCE, baseline_of, difference, published_of, reach
from simcse_pl.reports.sweeps.seed_groups import METHOD, SeedGroups
from simcse_pl.reports.sweeps.sweep_results import Job, differing
from simcse_pl.reports.tables.score_tables import failure_notes


def sweep_notes(groups: SeedGroups) -> list[str]:
    """Return the notes below a sweep's table: what was run, the paper's setting, warnings, and what is missing."""
    about = [*_about_scores(groups), *_about_runs(groups), *_about_paper(groups), *_about_differences(groups)]
    return [*about, *_warnings(groups), *_gaps(groups)]


def _about_scores(groups: SeedGroups) -> list[str]:
    validations = _or(run.validation for run in groups.sweep.runs)
    measured = any("alignment" in run.best for run in groups.sweep.runs) and not groups.compares_methods
    plane = "alignment and uniformity are measured on dev; " * measured
    best = "; *: best on dev" * (not groups.compares_methods)
    notes = [f"dev: {validations}, which selects the checkpoint; {plane}mean ± sample standard deviation (seeds){best}"]
    if tasks := groups.sts_tasks:
        notes.append(f"sts: mean Spearman x 100 on test of {', '.join(tasks)}{_few(tasks, STS_TASKS)}")
    if tasks := groups.transfer_tasks:
        few = _few(tasks, TRANSFER_TASKS)
        classifier = _or(run.transfer_classifier for run in groups.sweep.runs if run.transfer_dev)
        paper = "; paper: pytorch classifier" * bool(groups.paper and "transfer" in groups.paper.scores)
        notes.append(f"transfer: mean accuracy x 100 on dev of {', '.join(tasks)}{few}, {classifier} classifier{paper}")
    return notes


def _few(tasks: Sequence[str], all_tasks: Sequence[str]) -> str:
    return f" ({len(tasks)} of {len(all_tasks)} tasks)" * (len(tasks) < len(all_tasks))


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
        tables = ", ".join(published()["ablation_tables"])
        return [f"warning: unknown table {sweep.table}; tables of the paper: {tables}"] * unknown
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


def _about_differences(groups: SeedGroups) -> list[str]:
    """Return what the methods are compared with, what a star means, and where the published scores are from."""
    if not groups.compares_methods:
        return []
    notes = []
    pairs = [(group, baseline_of(groups, group)) for group in groups.groups if not group.is_baseline]
    if simcse := _or(f"{other.options[METHOD]} ({other.setting})" for _, other in pairs if other):
        counts = sorted({difference(groups, group, "dev").count for group, _ in pairs} - {0, 1})
        widths = "".join(f"; over {n} seeds it reaches {reach(n):.1f} standard deviations to each side" for n in counts)
        notes.append(
            f"difference: from {simcse} with the same seed, mean [{CONFIDENCE:.0%} t-interval]{widths}; *: a gain "
            f"whose interval excludes 0; about 1 in {2 / (1 - CONFIDENCE):.0f} methods without any effect gets a star"
        )
    if alone := [group.label for group, other in pairs if not other]:
        notes.append(f"no difference, because SimCSE in this setting is not in the sweep: {'; '.join(alone)}")
    scores = {group.label: score for group in groups.groups if (score := published_of(group))}
    if scores and groups.comparable:
        copies = [label for label, score in scores.items() if score.source == "board"]
        doubts = [f"{label} ({score.doubt})" for label, score in scores.items() if score.doubt]
        found = {"copied from a third party": copies, "not certain": doubts}
        rest = "".join(f"; {what}: {', '.join(labels)}" for what, labels in found.items() if labels)
        notes.append(f"published: STS average on test, {_or(score.model for score in scores.values())}{rest}")
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
    for group in groups.groups if groups.compares_methods else []:
        other = baseline_of(groups, group)
        if other and (group.choices.get("data") != other.choices.get("data")):
            data = f"{group.choices.get('data')}, not on {other.choices.get('data')} as {other.options[METHOD]}"
            notes.append(f"warning: {group.label} was trained on {data}")
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
        "pruned by the search": [job.name for job in sweep.jobs if job.pruned],
    }
    return notes + [f"{what}: {'; '.join(jobs)}" for what, jobs in found.items() if jobs]


def _or(values: Iterable[object]) -> str:
    """Join distinct values, without None."""
    return " or ".join(dict.fromkeys(str(value) for value in values if value is not None))
