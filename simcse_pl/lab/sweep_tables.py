"""The table of a sweep: scores over seeds in the layout of the paper's table, with the paper's numbers and notes."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from simcse_pl.evaluation.results import TRANSFER_TASKS
from simcse_pl.evaluation.sts import STS_TASKS
from simcse_pl.lab.encoder_tables import failure_notes
from simcse_pl.lab.published import Ablation, paper_file
from simcse_pl.lab.read_runs import differing
from simcse_pl.lab.seed_groups import BEFORE, CONFIDENCE, METHOD, Sweep
from simcse_pl.results import scale_note
from simcse_pl.utils.tables import Table
from simcse_pl.utils.text import without_folders

_OF_METHODS = ("dev", "test", "sts")  # the others have no room beside the differences
_CHANGE = re.compile(r" from -?[\d.]+ to -?[\d.]+")  # in warnings, which differ in it alone


def sweep_table(sweep: Sweep, name: str = "sweep") -> Table:
    """Return a table with one row per group; `name` is the name of the files.

    A score is shown as `* 70.25 ± 1.50 (3)` and saved as columns `X`, `X std` and `X n`. A difference is shown as
    `* +0.25 [+0.10, +0.40]` and saved as columns `X`, `X low`, `X high` and `X n`. The scores before training are
    columns if they differ, except of methods.
    """
    parts = zip(*_columns(sweep), strict=True)
    frame, cells = (pd.concat([_labels(sweep), *columns], axis="columns") for columns in parts)
    title, caption = f"{sweep.title}: {sweep.score_name}", _caption(sweep)
    return Table(name, title, frame.assign(given=sweep.given), notes=sweep_notes(sweep), cells=cells, caption=caption)


def _columns(sweep: Sweep) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield columns of numbers, in full precision and as they are shown."""
    groups, compares_methods = sweep.groups, sweep.compares_methods
    for score in _OF_METHODS if compares_methods else sweep.scores:
        if score == "dev" or groups[f"{score} n"].any():
            digits = sweep.decimals(score)
            before = groups.filter([f"{score} before"])
            if not compares_methods and before.round(digits).nunique().gt(1).any():
                yield before, before.apply(_texts, digits=digits)
            yield _means(sweep, score, digits)
            if compares_methods or (score == "dev" and groups["dev pairs"].max() > 1):
                yield _differences(sweep, score, digits)
            if compares_methods and score == "dev" and sweep.comparable:
                published = groups[["published", "published difference"]]
                yield published, published.apply(_texts, digits=2)
        if sweep.paper and sweep.comparable:
            figures = _papers_figures(sweep, sweep.paper, score)
            yield figures, figures.apply(_texts, digits=1)


def _means(sweep: Sweep, score: str, digits: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the mean of a score over seeds, its standard deviation, and the number of seeds.

    A star marks the best means on dev in each column, as they are shown, if all rows that ran have the same number of
    seeds, two or more: the best of few seeds is better by chance.
    """
    columns = sweep.groups[[score, f"{score} std", f"{score} n"]]
    star = pd.Series(data=False, index=columns.index)
    if score == "dev" and not sweep.compares_methods:
        column, count = sweep.groups["column"], columns["dev n"]
        shown = columns["dev"].round(digits)
        dev, seeds = shown.groupby(column), count.where(sweep.groups["trained"] & (count > 0)).groupby(column)
        best = dev.transform("min" if sweep.results[0].mode == "min" else "max")
        star = (shown == best) & (dev.transform("count") > 1)
        star &= (seeds.transform("nunique") == 1) & (seeds.transform("min") > 1)
    return columns, _with_spread(sweep, columns, " ± " + _texts(columns[f"{score} std"], digits), star, digits)


def _differences(sweep: Sweep, score: str, digits: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the differences of a score from the baselines; of methods, a star marks gains beyond their interval."""
    name = f"difference on {score}"
    mean, margin, pairs = (sweep.groups[f"{score} {part}"] for part in ("difference", "margin", "pairs"))
    ends = {f"{name} low": mean - margin, f"{name} high": mean + margin}
    columns = pd.DataFrame({name: mean, **ends, f"{name} n": pairs.astype(int)})
    low, high = (_texts(columns[end], digits) for end in ends)
    lower = sweep.results[0].mode == "min" and score != "sts"  # which has its own metric
    star = (columns[f"{name} high"] < 0 if lower else columns[f"{name} low"] > 0) & sweep.compares_methods
    return columns, _with_spread(sweep, columns, " [" + low + ", " + high + "]", star, digits)


def _with_spread(sweep: Sweep, columns: pd.DataFrame, spread: pd.Series, star: pd.Series, digits: int) -> pd.DataFrame:
    """Return the first column as text, with its spread if there are several seeds.

    The number of seeds, the last column, follows unless it is that of dev.
    """
    name, count = columns.columns[0], columns.iloc[:, -1]
    counted = (count > 0) & sweep.groups["trained"] & ((name == "dev") | (count != sweep.groups["dev n"]))
    text = star.map({True: "* ", False: ""}) + _texts(columns[name], digits) + spread.where(count > 1, "")
    return pd.DataFrame({name: text + (" (" + count.astype(str) + ")").where(counted, "")})


def _texts(values: pd.Series, digits: int) -> pd.Series:
    """Return numbers as they are shown; the name of a column says whether they are differences, which have a sign."""
    sign = "+" if "difference" in str(values.name) else ""
    return values.map(lambda x: "–" if pd.isna(x) else f"{sign * (x > 0)}{x:.{digits}f}")


def seed_table(sweep: Sweep) -> pd.DataFrame:
    """Return the scores of each run in full precision, with what distinguishes it, for tests of one's own."""
    runs = sweep.runs[[*sweep.keys, "seed", *BEFORE, *sweep.scores]].replace("", pd.NA)
    return runs.dropna(axis="columns", how="all").rename(columns=_headings(sweep))


def _headings(sweep: Sweep) -> dict[str, str]:
    """Return the headings of the columns that are no options."""
    return {"row": sweep.paper.varied if sweep.paper else "row" if sweep.table else "run", "column": "setting"}


def _labels(sweep: Sweep) -> pd.DataFrame:
    """Return the columns that say what each row is."""
    scores, headings = sweep.groups, _headings(sweep)
    frame = pd.DataFrame(index=scores.index)
    if sweep.has_rows:
        frame[headings["row"]] = scores["row"]
    if scores["column"].nunique() > 1:
        frame[headings["column"]] = scores["column"]
    frame[sweep.options] = scores[sweep.options]
    if sweep.compares_methods and scores["setting"].nunique() > 1:
        frame["setting"] = scores["setting"]
    return frame.fillna("–").replace("", "–") if len(frame.columns) else scores[["label"]].set_axis(["runs"], axis=1)


def _papers_figures(sweep: Sweep, paper: Ablation, score: str) -> pd.DataFrame:
    """Return the paper's columns to show beside one of our scores."""
    settings, cells = paper.settings, sweep.groups
    figures = pd.DataFrame([paper.rows.get(row, {}) for row in cells["row"]], dtype=float)
    if not settings and score in paper.scores:
        figures = figures.reindex(columns=[score]).set_axis(["paper" if score == "dev" else f"paper, {score}"], axis=1)
    elif score == "dev" and sweep.columns:
        cell = cells[["row", "column"]].itertuples(index=False)
        figures = pd.DataFrame({"paper": [paper.rows.get(row, {}).get(column) for row, column in cell]}, dtype=float)
    elif score == "dev":
        figures = figures.reindex(columns=settings).add_prefix("paper, ")
    else:
        return pd.DataFrame(index=cells.index)
    return figures.dropna(axis="columns", how="all")


def _caption(sweep: Sweep) -> str:
    """Return what is compared, by which score, what was trained, and what the numbers mean."""
    what = f"{sweep.compared[:1].upper()}{sweep.compared[1:]}: {sweep.score_name}"
    published = _about_published(sweep) if sweep.comparable else ()
    return "; ".join([what, *_scores(sweep), _facts(sweep), *_about_differences(sweep), *published])


def sweep_notes(sweep: Sweep) -> list[str]:
    """Return the notes below a sweep's table: what was run, the paper's setting, warnings, and what failed."""
    return [
        *_scores(sweep),
        _facts(sweep),
        *([f"given: {sweep.given}"] if sweep.given else []),
        *_about_differences(sweep),
        *_about_published(sweep),
        *(_about_methods(sweep) if sweep.compares_methods else []),
        *(f"warning: {text}" for text in _warnings(sweep)),
        *failure_notes({job.label: job.results.failed for job in sweep.jobs if job.results}),
        *_without_results(sweep),
    ]


def _spread(sweep: Sweep) -> str:
    """Return what stands beside a score."""
    if sweep.runs.groupby(sweep.keys)["seed"].nunique().max() < 2:
        return "one seed per row"
    spread = "mean ± standard deviation over seeds (number of seeds)"
    if sweep.compares_methods or len(sweep.groups) == 1:
        return spread
    return f"{spread}; *: the best mean, if all rows have the same number of seeds; no test of significance"


def _scores(sweep: Sweep) -> Iterator[str]:
    """Yield what each score is measured on."""
    yield f"dev: {sweep.dev_set}, which selects the checkpoint; {_spread(sweep)}"
    if scale := scale_note(*sweep.scores[3:-1]):
        yield f"other metrics: on dev ({scale})"
    if tasks := sweep.tasks["sts"]:
        yield f"sts: mean Spearman x 100 on test of {_tasks(tasks, STS_TASKS)}"
    if tasks := sweep.tasks["transfer"]:
        classifier = _or(run.transfer_classifier for run in sweep.results if run.transfer_dev)
        scored = f"transfer: mean accuracy x 100 on dev of {_tasks(tasks, TRANSFER_TASKS)}, {classifier} classifier"
        yield f"{scored}; paper: pytorch_fast classifier"


def _warnings(sweep: Sweep) -> Iterator[str]:
    """Yield why scores of the sweep may not be comparable, or are too high."""
    labels: dict[str, list[str]] = {}
    for job in sweep.jobs:
        for warning in job.results.warnings if job.results else ():
            labels.setdefault(_CHANGE.sub("", warning), []).append(job.label)
    for warning, warned in labels.items():
        all_warned = len(warned) == len(sweep.results)
        yield warning if all_warned else f"{warning} (jobs {', '.join(warned)})"
    if len(validations := {run.validation for run in sweep.results}) > 1:
        yield f"validated on different data: {', '.join(sorted(validations))}"
    elif len({run.settings.get("measured on") for run in sweep.results} - {None}) > 1:
        yield "measured on files of the same name with other content"
    contents = sweep.runs.groupby(sweep.keys)["content"].nunique()
    for key in contents[contents > 1].index:
        yield f"{', '.join(filter(None, key)) or 'all jobs'}: trained on files of the same name with other content"
    if len({run.monitor for run in sweep.results}) > 1:
        yield f"checkpoints chosen by different metrics: {sweep.score_name}"
    if len(sweep.runs) > 1 and sweep.runs.groupby(sweep.keys).size().max() == 1:
        yield "one seed per row; scores can differ by points between seeds, so run seed=0,1,2"
    seeds = sweep.runs.groupby([*sweep.keys, "seed"], sort=False).size()
    for key, count in seeds[seeds > 1].items():
        yield f"{', '.join(filter(None, key))}: this seed counts {count} times"


def _without_results(sweep: Sweep) -> Iterator[str]:
    """Yield the jobs that have no results or no score, and those that a search has pruned."""
    varied = differing(sweep.jobs)
    failed = [job for job in sweep.jobs if not job.results]
    unscored = [job for job in sweep.jobs if job.results and math.isnan(job.results.best_score)]
    pruned = [job for job in sweep.jobs if job.results and job.results.trial and job.results.trial["pruned"]]
    for state, jobs in {
        "failed or unfinished": failed,
        "no score on dev": unscored,
        "pruned by the search": pruned,
    }.items():
        options = [" ".join(f"{name}={job.options[name]}" for name in job.options if name in varied) for job in jobs]
        if named := [f"{job.label} ({changed})" for job, changed in zip(jobs, options, strict=True)]:
            yield f"{state}: {'; '.join(named)}"


def _facts(sweep: Sweep) -> str:
    """Return what was trained, on which data, and for how long; without results of a fact, it is left out."""
    runs, jobs = sweep.results, [job for job in sweep.jobs if job.results]
    facts = {
        "setting": _or(sweep.runs["setting"]) if sweep.compares_methods else "",
        "model": _or(without_folders(job.options.get("model.name") or job.value("model")) for job in jobs),
        "data": _or(without_folders(run.settings.get("data", "")) for run in runs),
        "steps": _or(run.steps for run in runs),
        "seeds": ", ".join(sorted({*sweep.runs["seed"]} - {""}, key=lambda seed: (len(seed), seed))),
    }
    if "data.batch_size" in sweep.options and len({run.steps for run in runs}) == 1:
        facts["steps"] += " for all batch sizes, so larger batches see more sentences"
    for name in BEFORE:
        ends = sweep.runs[name].agg(["min", "max"]).dropna()
        facts[f"{name} training"] = " to ".join(dict.fromkeys(f"{end:.{sweep.decimals()}f}" for end in ends))
    return "; ".join(f"{name} {value}" for name, value in facts.items() if value)


def _tasks(tasks: Sequence[str], all_tasks: Sequence[str]) -> str:
    names = ", ".join(tasks)
    return names if len(tasks) == len(all_tasks) else f"{names} ({len(tasks)} of {len(all_tasks)} tasks)"


def _about_published(sweep: Sweep) -> Iterator[str]:
    """Yield what the published scores beside ours are, or why they are not shown."""
    models = _or(sweep.runs["published model"].dropna()) if sweep.compares_methods else ""
    if sweep.paper:
        yield _about_paper(sweep, sweep.paper)
    elif models and not sweep.comparable:
        yield "the published scores are Spearman's correlations on STS test sets, so they are not shown"
    elif models:
        yield f"published: STS average on test that a paper or its code reports for {models}"


def _about_paper(sweep: Sweep, paper: Ablation) -> str:
    """Return the setting of the paper's numbers."""
    if not sweep.comparable:
        return "the paper's scores are Spearman's correlations on STS-B dev, so they are not shown"
    if paper.rows:
        return "paper: " + ", ".join(filter(None, ["BERT-base", paper.trained, _or(sweep.columns), "on STS-B dev"]))
    chosen = [
        f"{setting} {model} {size} and {rate:g}"
        for setting, models in paper_file()[sweep.table or ""].items()
        for model, (size, rate) in models.items()
    ]
    return f"the paper's choice of batch size and learning rate: {', '.join(chosen)}"


def _about_differences(sweep: Sweep) -> Iterator[str]:
    """Yield what the groups are compared with, and how often an interval excludes 0 by chance."""
    if sweep.groups["dev pairs"].max() > (0 if sweep.compares_methods else 1):
        compared = METHOD if sweep.compares_methods else "row" if sweep.has_rows else "label"
        baselines, chance = _or(sweep.groups[compared][sweep.groups["is_baseline"]]), 1 / (1 - CONFIDENCE)
        same = [_headings(sweep).get(name, name) for name in sweep.alike if sweep.groups[name].nunique() > 1]
        often = f"without any effect, about 1 interval in {chance:.0f} excludes 0"
        if sweep.compares_methods:
            often = f"*: a gain whose interval excludes 0, as about 1 in {2 * chance:.0f} does without any effect"
        alike = " and ".join([*same, "seed"])
        yield f"difference: from {baselines} with the same {alike}, mean [{CONFIDENCE:.0%} t-interval]; {often}"


def _about_methods(sweep: Sweep) -> Iterator[str]:
    """Yield which methods have no difference, and which data differ."""
    groups = sweep.groups
    if alone := groups["label"][(groups["dev pairs"] == 0) & ~groups["is_baseline"] & groups["trained"]].tolist():
        yield f"no difference, because SimCSE with the same setting and seeds is missing: {'; '.join(alone)}"
    for setting, data in sweep.runs.groupby("setting")["trained on"]:
        if data.nunique() > 1:
            yield f"warning: {setting} methods were trained on different data: {_or(data)}"


def _or(values: Iterable[object]) -> str:
    """Join distinct values, without None."""
    return " or ".join(dict.fromkeys(str(value) for value in values if value is not None))
