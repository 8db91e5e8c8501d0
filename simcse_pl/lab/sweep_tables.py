"""The table of a sweep: scores over seeds in the layout of the paper's table, with the paper's numbers and notes."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from simcse_pl.evaluation.results import TRANSFER_TASKS
from simcse_pl.evaluation.sts import STS_TASKS
from simcse_pl.lab.published import Ablation, paper_file
from simcse_pl.lab.runs import differing
from simcse_pl.lab.seed_groups import BEFORE, CONFIDENCE, METHOD, Sweep, differences
from simcse_pl.lab.tables import failure_notes
from simcse_pl.results import decimals, scale_note
from simcse_pl.utils.tables import Table
from simcse_pl.utils.text import without_folders

_OF_METHODS = ("dev", "test", "sts")  # the others have no room beside the differences
_CHANGE = re.compile(r" from -?[\d.]+ to -?[\d.]+")  # in warnings, which differ in it alone
_DECIMALS = {"sts": 2, "transfer": 2, "paper": 1, "paper,": 1, "published": 2}


def sweep_table(sweep: Sweep, name: str = "sweep") -> Table:
    """Return a table with one row per group; `name` is the name of the files.

    A score is shown as `* 70.25 ± 1.50 (3)` and saved as columns `X`, `X std` and `X n`. A difference is shown as
    `* +0.25 [+0.10, +0.40]` and saved as columns `X`, `X low`, `X high` and `X n`. The scores before training are
    columns if they differ, except of methods.
    """
    scores = sweep.groups
    frame = _labels(sweep)
    starts = [name for name in BEFORE if scores[name].round(sweep.decimals).nunique() > 1]
    for score in _OF_METHODS if sweep.compares_methods else sweep.scores:
        if score == "dev" or scores[f"{score} n"].any():
            if f"{score} before" in starts and not sweep.compares_methods:
                frame = frame.join(scores[f"{score} before"])
            frame = frame.join(scores[[score, f"{score} std", f"{score} n"]])
            if sweep.compares_methods or (score == "dev" and differences(sweep, score)["count"].max() > 1):
                frame = frame.join(_differences(sweep, score))
        if sweep.paper and sweep.comparable:
            frame = frame.join(_papers_figures(sweep, score))
    known = dict.fromkeys(("dev", "test", "difference"), sweep.decimals) | _DECIMALS
    known |= {metric: decimals(metric, frame[metric]) for metric in sweep.scores[3:-1] if metric in frame}
    digits = {name: 0 if name.endswith(" n") else _of_column(name, known) for name in frame}
    table = Table(
        name, f"{sweep.title}: {sweep.score_name}", frame, digits, sweep_notes(sweep), caption=_caption(sweep)
    )
    return replace(table, frame=frame.assign(given=sweep.given), cells=_with_spread(sweep, table))


def _of_column(name: str, known: Mapping[str, int]) -> int:
    """Return the decimals of a column of a score, such as `dev` or `dev std`; the name of a score may have spaces."""
    scores = [score for score in known if f"{name} ".startswith(f"{score} ")]
    return known[max(scores, key=len)] if scores else 0


def _with_spread(sweep: Sweep, table: Table) -> pd.DataFrame:
    """Return the cells of a table with the spread of each score beside it, and the number of seeds unless as on dev.

    A star marks the best mean on dev in each column, if all rows that ran have the same number of seeds, two or more:
    the best of few seeds is better by chance. Of methods, it marks gains over SimCSE beyond the spread of seeds.
    """
    cells, frame = table.shown(), table.frame
    trained = sweep.groups["seed"] != ""
    lower = sweep.results[0].mode == "min"
    for name in [name for name in cells if "difference" in name]:
        cells[name] = (frame[name] > 0).map({True: "+", False: ""}) + cells[name]
    for score in [name for name in cells if f"{name} n" in cells]:
        count = frame[f"{score} n"]
        if f"{score} std" in cells:
            spread, star = " ± " + cells[f"{score} std"], pd.Series(data=False, index=frame.index)
        else:
            spread = " [" + cells[f"{score} low"] + ", " + cells[f"{score} high"] + "]"
            lower_score = lower and not score.endswith("sts")  # which has its own metric
            gain = frame[f"{score} high"] < 0 if lower_score else frame[f"{score} low"] > 0
            star = gain & sweep.compares_methods
        if score == "dev" and not sweep.compares_methods:
            column = sweep.groups["column"]
            dev, seeds = frame[score].groupby(column), count.where(trained & (count > 0)).groupby(column)
            star = (frame[score] == dev.transform("min" if lower else "max")) & (dev.transform("count") > 1)
            star &= (seeds.transform("nunique") == 1) & (seeds.transform("min") > 1)
        counted = (count > 0) & trained & ((score == "dev") | (count != frame["dev n"]))
        cells[score] = star.map({True: "* ", False: ""}) + cells[score] + spread.where(count > 1, "")
        cells[score] += (" (" + count.astype(str) + ")").where(counted, "")
        cells = cells.drop(columns=[f"{score} {part}" for part in ("std", "low", "high", "n")], errors="ignore")
    return cells


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


def _differences(sweep: Sweep, score: str) -> pd.DataFrame:
    """Return the columns of the differences from the baselines; of methods beside dev, also the published averages."""
    gains, name = differences(sweep, score), f"difference on {score}"
    columns = {
        name: gains["mean"],
        f"{name} low": gains["mean"] - gains["margin"],
        f"{name} high": gains["mean"] + gains["margin"],
        f"{name} n": gains["count"],
    }
    of_methods = sweep.compares_methods and score == "dev" and sweep.comparable
    return pd.DataFrame(columns).join(sweep.groups[["published", "published difference"] * of_methods])


def _papers_figures(sweep: Sweep, score: str) -> pd.DataFrame:
    """Return the paper's columns to show beside one of our scores."""
    assert sweep.paper is not None
    settings, cells = sweep.paper.settings, sweep.groups
    figures = pd.DataFrame([sweep.paper.rows.get(row, {}) for row in cells["row"]], dtype=float)
    if not settings and score in sweep.paper.scores:
        figures = figures.reindex(columns=[score]).set_axis(["paper" if score == "dev" else f"paper, {score}"], axis=1)
    elif score == "dev" and sweep.columns:
        of_column = [row.get(column) for row, column in zip(figures.to_dict("records"), cells["column"], strict=True)]
        figures = pd.DataFrame({"paper": of_column}, dtype=float)
    elif score == "dev":
        figures = figures.reindex(columns=settings).add_prefix("paper, ")
    else:
        return pd.DataFrame(index=cells.index)
    return figures.dropna(axis="columns", how="all")


def _caption(sweep: Sweep) -> str:
    """Return what is compared, by which score, and what the numbers mean."""
    what = f"{sweep.compared[:1].upper()}{sweep.compared[1:]}: {sweep.score_name}"
    paper = [_about_paper(sweep, sweep.paper)] if sweep.paper and sweep.comparable and sweep.has_rows else []
    return "; ".join([what, _spread(sweep), *_about_differences(sweep), *paper])


def sweep_notes(sweep: Sweep) -> list[str]:
    """Return the notes below a sweep's table: what was run, the paper's setting, warnings, and what failed."""
    return [
        *_scores(sweep),
        _facts(sweep),
        *([f"given: {sweep.given}"] if sweep.given else []),
        *_about_differences(sweep),
        *([_about_paper(sweep, sweep.paper)] if sweep.paper else []),
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
    yield f"dev: {_or(run.validation for run in sweep.results)}, which selects the checkpoint; {_spread(sweep)}"
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
    for warning, of_jobs in labels.items():
        yield warning + f" (jobs {', '.join(of_jobs)})" * (len(of_jobs) < len(sweep.results))
    validations = {run.validation for run in sweep.results}
    if len(validations) > 1:
        yield f"validated on different data: {', '.join(sorted(validations))}"
    if len({run.monitor for run in sweep.results}) > 1:
        yield f"checkpoints chosen by different metrics: {sweep.score_name}"
    if len(sweep.runs) > 1 and sweep.runs.groupby(sweep.keys).size().max() == 1:
        yield "one seed per row; scores can differ by points between seeds, so run seed=0,1,2"
    seeds = sweep.runs.groupby([*sweep.keys, "seed"], sort=False).size()
    for key, count in seeds[seeds > 1].items():
        yield f"{', '.join(filter(None, key))}: this seed counts {count} times"


def _without_results(sweep: Sweep) -> Iterator[str]:
    """Yield the jobs that have no results, and those that a search has pruned."""
    varied = differing(sweep.jobs)
    for state in ("failed or unfinished", "pruned by the search"):
        jobs = {job.label: job.options.items() for job in sweep.jobs if job.state == state}
        named = [f"{job} ({' '.join(f'{n}={v}' for n, v in options if n in varied)})" for job, options in jobs.items()]
        if named:
            yield f"{state}: {'; '.join(named)}"


def _facts(sweep: Sweep) -> str:
    """Return what was trained, on which data, and for how long; without results of a fact, it is left out."""
    runs = sweep.results
    data = [without_folders(run.settings.get("data", "")) or run.choices.get("data") for run in runs]  # of older ones
    facts = {
        "setting": _or(sweep.runs["setting"]) if sweep.compares_methods else "",
        "model": _or(run.choices.get("model") for run in runs),
        "data": _or(data),
        "steps": _or(run.steps for run in runs),
        "seeds": ", ".join(sorted({*sweep.runs["seed"]} - {""}, key=lambda seed: (len(seed), seed))),
    }
    for name in BEFORE:
        ends = sweep.runs[name].agg(["min", "max"]).dropna()
        facts[f"{name} training"] = " to ".join(dict.fromkeys(f"{end:.{sweep.decimals}f}" for end in ends))
    return "; ".join(f"{name} {value}" for name, value in facts.items() if value)


def _tasks(tasks: Sequence[str], all_tasks: Sequence[str]) -> str:
    return ", ".join(tasks) + f" ({len(tasks)} of {len(all_tasks)} tasks)" * (len(tasks) < len(all_tasks))


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
    if differences(sweep, "dev")["count"].max() > (0 if sweep.compares_methods else 1):
        compared = METHOD if sweep.compares_methods else "row" if sweep.has_rows else "label"
        baselines, chance = _or(sweep.groups[compared][sweep.groups["is_baseline"]]), 1 / (1 - CONFIDENCE)
        same = [_headings(sweep).get(name, name) for name in sweep.alike if sweep.groups[name].nunique() > 1]
        often = f"without any effect, about 1 interval in {chance:.0f} excludes 0"
        if sweep.compares_methods:
            often = f"*: a gain whose interval excludes 0, as about 1 in {2 * chance:.0f} does without any effect"
        alike = " and ".join([*same, "seed"])
        yield f"difference: from {baselines} with the same {alike}, mean [{CONFIDENCE:.0%} t-interval]; {often}"


def _about_methods(sweep: Sweep) -> Iterator[str]:
    """Yield which methods have no difference, of which model the published scores are, and which data differ."""
    scores = sweep.groups
    counts = differences(sweep, "dev")["count"]
    if alone := scores["label"][(counts == 0) & ~scores["is_baseline"] & (scores["seed"] != "")].tolist():
        yield f"no difference, because SimCSE with the same setting and seeds is missing: {'; '.join(alone)}"
    models = _or(sweep.runs["published model"].dropna())
    if sweep.comparable and models:
        yield f"published: STS average on test, {models}"
    for setting, data in sweep.runs.groupby("setting")["trained on"]:
        if data.nunique() > 1:
            yield f"warning: {setting} methods were trained on different data: {_or(data)}"


def _or(values: Iterable[object]) -> str:
    """Join distinct values, without None."""
    return " or ".join(dict.fromkeys(str(value) for value in values if value is not None))
