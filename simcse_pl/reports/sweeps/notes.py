"""What a reader must know beside a sweep's table: what was run and on what, the paper's own setting, and warnings."""

import math
from collections.abc import Iterable

from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS
from simcse_pl.reports.paper import ablation_names, published
from simcse_pl.reports.sweeps.seed_groups import SeedGroups
from simcse_pl.reports.sweeps.sweep_results import Job, Sweep, differing
from simcse_pl.reports.tables.score_tables import failure_notes


def sweep_notes(groups: SeedGroups) -> list[str]:
    """A line each: what the scores are, what was trained, the paper's setting, and then what is wrong or missing."""
    return [*_about_scores(groups), *_about_runs(groups), *_about_paper(groups), *_warnings(groups), *_gaps(groups)]


def _about_scores(groups: SeedGroups) -> list[str]:
    validations = _values(run.validation for run in groups.sweep.runs)
    notes = [
        f"dev: {' or '.join(validations)}, which the checkpoint is chosen by; alignment and uniformity are of dev; "
        "mean ± sample standard deviation (seeds); *: best on dev"
    ]
    if tasks := groups.transfer_tasks:
        few = f" ({len(tasks)} of {len(TRANSFER_TASKS)} tasks)" * (len(tasks) < len(TRANSFER_TASKS))
        classifiers = " or ".join(_values(run.transfer_classifier for run in groups.sweep.runs if run.transfer_dev))
        note = f"transfer: mean accuracy x 100 on dev of {', '.join(tasks)}{few}, {classifiers} classifier"
        papers = groups.paper is not None and "transfer" in groups.paper.scores
        notes.append(note + "; the paper's: pytorch classifier" * papers)
    return notes


def _about_runs(groups: SeedGroups) -> list[str]:
    """Model, data, steps, seeds, and where training began; of seeds alone, how far apart they are."""
    jobs = [(job, job.run) for job in groups.sweep.jobs if job.run]
    seeds = _values(sorted(job.seed for job, _ in jobs if job.seed is not None))
    facts = {
        "model": " or ".join(_values(job.choices.get("model") for job, _ in jobs)),
        "data": " or ".join(_values(job.choices.get("data") for job, _ in jobs)),
        "steps": " or ".join(_values(run.steps for _, run in jobs)),
        "seeds" if len(seeds) > 1 else "seed": ", ".join(seeds),
    }
    before = [100 * run.before.spearman for _, run in jobs]
    if all(map(math.isfinite, before)):
        facts["dev before training"] = " to ".join(_values(f"{end(before):.2f}" for end in (min, max)))
    notes = ["; ".join(f"{name} {value}" for name, value in facts.items() if value)]
    scores = [(100 * run.best.spearman, job.seed) for job, run in jobs]
    if len(groups.groups) == 1 and len(scores) > 1 and all(math.isfinite(score) for score, _ in scores):
        ends = (end(scores, key=lambda one: one[0]) for end in (min, max))
        notes.append(f"dev from {' to '.join(f'{score:.2f} (seed {seed})' for score, seed in ends)}")
    return [note for note in notes if note]


def _about_paper(groups: SeedGroups) -> list[str]:
    sweep, paper = groups.sweep, groups.paper
    if paper is None:
        mistaken = sweep.table is not None and sweep.table.startswith("table_")
        tables = ", ".join(ablation_names())
        return [f"warning: the paper has no {sweep.table}; those that it has: {tables}"] * mistaken
    if not paper.rows:
        chosen = [
            f"{setting} {model} {size} and {rate:g}"
            for setting, models in published()[sweep.table or ""].items()
            for model, (size, rate) in models.items()
        ]
        return [f"the paper chose, of batch sizes and learning rates: {', '.join(chosen)}"]
    if not groups.has_rows:
        return ["warning: no job says which row of the table it is (sweep.row), so that the paper's are not shown"]
    about = ["BERT-base", *filter(None, [paper.trained]), " or ".join(groups.known_columns), "on STS-B dev"]
    notes = [f"paper: {', '.join(filter(None, about))}"]
    if paper.settings and (not groups.columns or groups.known_columns != groups.columns):
        given = f"={', '.join(groups.columns)}" if groups.columns else " is not set"
        notes.append(f"warning: sweep.column{given}; the table's columns: {', '.join(paper.settings)}")
    return notes


def _warnings(groups: SeedGroups) -> list[str]:
    """Why scores may not be compared as they stand."""
    notes = []
    validations: dict[str, list[str]] = {}
    for job in groups.sweep.jobs:
        if job.run:
            validations.setdefault(job.run.validation, []).append(job.name)
    if len(validations) > 1:
        told = "; ".join(f"{name} ({', '.join(jobs)})" for name, jobs in validations.items())
        notes.append(f"warning: validated on different data: {told}")
    counts = {group.label: len(groups.scores("dev", group)) for group in groups.groups if group.jobs}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{label}: {count}" for label, count in counts.items())
        notes.append(f"warning: not all have as many seeds: {told}")
    if len(counts) > 1 and max(counts.values()) == 1:
        notes.append("warning: one seed each, though seeds alone may move scores by points; seed=0,1,2 tells how far")
    for group in groups.groups:
        seeds = [job.seed for job in group.jobs if job.run and job.seed is not None]
        for seed in _values(seed for seed in seeds if seeds.count(seed) > 1):
            same = ", ".join(job.name for job in group.jobs if str(job.seed) == seed)
            notes.append(f"warning: {group.label}: seed {seed} counts more than once ({same})")
    return notes


def _gaps(groups: SeedGroups) -> list[str]:
    """What did not run, and what came out of runs without a number."""
    sweep = groups.sweep
    without = [job for job in sweep.jobs if job.run is None]
    broken = [job for job in sweep.jobs if job.run and not math.isfinite(job.run.best.spearman)]
    pruned = [job.name for job in sweep.jobs if job.run and job.run.trial and job.run.trial.pruned]
    notes = failure_notes({job.name: job.run.failed for job in sweep.jobs if job.run})
    for what, jobs in (("failed, or not at their end", without), ("no score on dev", broken)):
        if jobs:
            notes.append(f"{what}: {'; '.join(_told(job, sweep) for job in jobs)}")
    for what, names in (("missing", sweep.missing), ("ended early by the search", pruned)):
        if names:
            notes.append(f"{what}: {', '.join(names)}")
    return notes


def _told(job: Job, sweep: Sweep) -> str:
    """A job's folder, and how it differs from others."""
    varied = differing(sweep.jobs)
    options = [f"{name}={job.value(name)}" for name in job.options if name in varied]
    return " ".join([job.name, *([f"({' '.join(options)})"] if options else [])])


def _values(values: Iterable[object]) -> list[str]:
    """Each once, in their order; None is left out."""
    return list(dict.fromkeys(str(value) for value in values if value is not None))
