"""A sweep's jobs in groups that differ in the seed alone: scores over seeds, and differences from a baseline."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from scipy.stats import t

from simcse_pl.evaluation.results import TRANSFER_TASKS, Result
from simcse_pl.evaluation.sts import STS_TASKS
from simcse_pl.lab.encoder_tables import shared_tasks
from simcse_pl.lab.published import Ablation, ablation, methods_file, published_score, setting_of
from simcse_pl.lab.read_runs import Run, differing, is_sweep, keys_of, option_values, read_jobs, read_run
from simcse_pl.results import CURVES, SPEARMAN, SweepCell, TrainingRun, decimals, factor, is_of_file, score_name
from simcse_pl.run_folder import RESULTS_FILE, SWEEP_FILE
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.text import without_folders

ROW = "sweep.row"
CONFIDENCE = 0.95  # of intervals
METHOD = "method"
BEFORE = ("dev before", "test before")  # training
_OF_SCORES = ("monitor", "evaluators", "data.validation")  # scores of others cannot be compared
_IN_TITLES = ("sweep", "sweep.table", ROW, "size", "seed")
_IN_GROUPS = ("seed", ROW, "test_tasks", "senteval_dir")  # jobs of a group may differ in them


@dataclass(frozen=True)
class Sweep:
    """Jobs that are compared with each other, at least one of which has results, in groups.

    `runs` has a row per finished job, by its name: `row` (spelled as in the paper, or the label of the folder if
    several are compared; otherwise empty), `column`, `options`, `seed`, `setting`, and `scores`: correlations and
    shares x 100, NaN if not measured. dev and test are the monitored metric, and BEFORE has them before training.

    `groups` has a row per group: `label`, `keys`, and for each of `scores` the mean `X`, `X std` (the sample standard
    deviation) and `X n`. Rows of the paper are in its order; of methods, SimCSE first. `trained` is False for an
    evaluation. `is_baseline` marks the group that those with the same values of `alike` are compared with: of methods
    SimCSE, otherwise the first one or the paper's. `X pairs` is the number of seeds that a group has together with its
    baseline, `X difference` the mean of their `X differences`, and `X margin` half its interval. NaN: there are none.
    """

    label: str  # of the folders
    table: str | None
    size: str | None
    jobs: list[Run]  # in the order of their numbers
    encoders: list[str]  # labels of the evaluations that are rows
    paper: Ablation | None  # the table of the paper that the sweep repeats
    options: list[str]  # those that differ between groups and do not follow from row and column
    keys: list[str]  # the columns of `runs` that distinguish the groups
    alike: list[str]  # those of them in which a group equals its baseline
    runs: pd.DataFrame
    groups: pd.DataFrame
    scores: list[str]  # dev, test, sts, the other metrics on dev, transfer
    tasks: Mapping[str, list[str]]  # of `sts` and `transfer`: those that all runs with scores of some of them have

    @property
    def results(self) -> list[TrainingRun]:
        """The results of the jobs that have some."""
        return [job.results for job in self.jobs if job.results]

    @property
    def title(self) -> str:
        """The paper's table, or the name and the folder; and the size."""
        name = (self.table or "").replace("_", " ")
        title = f"{name} ({self.label})" if name else self.label
        title = f"Table {self.paper.number} of the paper, {self.paper.varied}" if self.paper else title
        return f"{title}, size={self.size}" if self.size else title

    @property
    def compared(self) -> str:
        """What the groups differ in, for titles of figures and captions."""
        last = [name.rpartition(".")[2] for name in self.options]
        options = [] if self.has_rows else last if len({*last}) == len(last) else self.options
        name = self.paper.varied if self.paper else self.table or " and ".join(options)
        return name.replace("_", " ") or "runs"

    @property
    def given(self) -> str:
        """The options given to all finished jobs, without those in titles; a row of the sweep may replace one."""
        values = option_values([job for job in self.jobs if job.results])
        same = {name: found.pop() for name, found in values.items() if len(found) == 1 and name not in _IN_TITLES}
        files = [file for folder in {job.folder.parent for job in self.jobs} for file in folder.glob(SWEEP_FILE)]
        of_configs = [yaml.safe_load(file.read_text("utf-8"))["hydra"]["sweeper"].get("params") or {} for file in files]
        given = {name: value for name, value in same.items() if all(str(own.get(name)) != value for own in of_configs)}
        return " ".join(f"{name}={without_folders(value)}" for name, value in given.items())

    @property
    def score_name(self) -> str:
        """The name and scale of the scores on dev and test."""
        return " or ".join(dict.fromkeys(score_name(run.monitor, run.mode) for run in self.results))

    @property
    def dev_set(self) -> str:
        """The name of the data that the scores on dev are of."""
        return " or ".join(dict.fromkeys(run.validation for run in self.results))

    @property
    def comparable(self) -> bool:
        """Whether published scores may stand beside those on dev: the metric and the data are those of the paper."""
        return all((run.monitor, run.validation) == (SPEARMAN, "STS-B") for run in self.results)

    def decimals(self, score: str = "dev") -> int:
        """Return the number of decimals of a score."""
        if score in ("dev", "test"):
            return max(decimals(run.monitor, [run.best_score]) for run in self.results)
        return 2 if score in self.tasks else decimals(score, self.groups[score])

    @property
    def has_rows(self) -> bool:
        """Whether the sweep has rows."""
        return bool(self.groups["row"].any())

    @property
    def compares_methods(self) -> bool:
        """Whether the groups are of several methods."""
        return METHOD in self.options

    @property
    def columns(self) -> list[str]:
        """The columns of the paper's table that the sweep has."""
        present = self.groups["column"].unique()
        return [name for name in self.paper.settings if name in present] if self.paper else []


def read_sweeps(folders: Mapping[str, str | Path], encoders: Sequence[Result] = ()) -> list[Sweep]:
    """Read folders of multiruns or of single runs. Those with the same table and size form one sweep.

    So do those of no table, and runs without a sweep beside them, with the same monitored metric. They are compared:
    their labels are the rows.

    Args:
        folders: paths by label. With several, the label of its folder precedes a job's name.
        encoders: evaluations. Those with the metrics of the runs on their validation set become rows beside them.
    """
    sweeps: dict[tuple[str | None, ...], tuple[SweepCell, list[tuple[str, Run]]]] = {}
    runs_alone = len(folders) > 1 and not any(map(is_sweep, folders.values()))
    for label, path in folders.items():
        prefix = f"{label}/" if len(folders) > 1 else ""
        jobs = read_jobs(Path(path), prefix) if is_sweep(path) else [read_run(Path(path), label)]
        first = next((job.results for job in jobs if job.results), None)
        if first is None:
            raise UserError(f"{path}: no job has a {RESULTS_FILE}; all have failed or none has finished yet")
        for job in jobs:
            cell = SweepCell() if runs_alone else (job.results or first).sweep or SweepCell()
            key = (cell.table, cell.size) if cell.table else (None, first.monitor)
            sweeps.setdefault(key, (cell, []))[1].append((label, job))
    return [_grouped(*sweep, encoders) for sweep in sweeps.values()]


def _grouped(cell: SweepCell, labelled: list[tuple[str, Run]], encoders: Sequence[Result]) -> Sweep:
    """Group the finished jobs of a sweep by row, column and the other options that differ."""
    labels, jobs = list(dict.fromkeys(label for label, _ in labelled)), [job for _, job in labelled]
    finished = [job for job in jobs if job.results]
    results = [job.results for job in finished if job.results]
    paper = ablation(cell.table) if cell.table else None
    options = [name for name in differing(finished) if name not in _IN_GROUPS]
    others = _other_metrics(results)
    evaluated = {} if cell.table else _evaluated(encoders, results[0])
    rows = [{"is_baseline": False, "dev": results[0].score(own), **_shown(own, others)} for own in evaluated.values()]
    rows += [_described(job, run, options, paper, others) for job, run in zip(finished, results, strict=True)]
    runs = pd.DataFrame(rows).fillna(dict.fromkeys(["column", *options, "seed", "setting"], ""))
    if not cell.table and len(labels) + len(evaluated) > 1:
        names = [f"{label}, evaluated" if label in labels else label for label in evaluated]
        runs["row"] = names + [label for label, job in labelled if job.results]
        labels = names + labels
    tasks = _add_means_of_tasks(runs, results)
    if runs["row"].any():  # an option that is the same in all jobs of a row and column follows from them
        values = runs.groupby(["row", "column"])[options].nunique()
        options = [name for name in options if values[name].max() > 1]
    keys, varied = ["row", "column", *options], ["row"] if runs["row"].any() else ["row", *options]
    if METHOD in options:
        keys, varied = list(dict.fromkeys([*keys, "setting"])), [METHOD]
        runs = runs.sort_values(["setting", "is_baseline"], ascending=False)  # unsupervised first
    alike = [name for name in keys if name not in varied or name in _OF_SCORES]
    scores = ["dev", "test", "sts", *others, "transfer"]
    groups = _compared_groups(runs, keys, alike, scores, paper)
    groups["label"] = [_label(group, options) for group in groups.to_dict("records")]
    label = ", ".join(labels)
    return Sweep(
        label, cell.table, cell.size, jobs, [*evaluated], paper, options, keys, alike, runs, groups, scores, tasks
    )


def _add_means_of_tasks(runs: pd.DataFrame, results: Sequence[TrainingRun]) -> dict[str, list[str]]:
    """Add the means `sts` and `transfer` to runs, and return the tasks of each."""
    tasks = {}
    evaluations: list[Mapping[str, float]] = [{}] * (len(runs) - len(results))  # the first rows, without scores
    for score, metrics, all_tasks in (("sts", "sts", STS_TASKS), ("transfer", "transfer_dev", TRANSFER_TASKS)):
        measured = pd.DataFrame([*evaluations, *(getattr(run, metrics) for run in results)], dtype=float)
        tasks[score] = shared_tasks(measured, all_tasks)
        runs[score] = 100 * measured[tasks[score]].mean(axis="columns", skipna=False).astype(float)
    return tasks


def _compared_groups(
    runs: pd.DataFrame, keys: list[str], alike: list[str], scores: Sequence[str], paper: Ablation | None
) -> pd.DataFrame:
    """Return a row per group of runs with equal `keys`, with differences from its baseline: see Sweep.groups."""
    by_group = runs.groupby(keys, sort=False)
    groups, ends = by_group[[*scores]].agg(["mean", "std", "count"]), {"mean": "", "std": " std", "count": " n"}
    groups.columns = pd.Index([f"{score}{ends[kind]}" for score, kind in groups.columns])
    first = by_group[["is_baseline", "published", "published difference", "seed"]].first()
    groups = groups.join([by_group[[*BEFORE]].mean(), first]).reset_index()
    groups["trained"] = groups["seed"] != ""
    if paper and runs["row"].any():  # other rows and columns come after those of the paper
        order = {"row": [*paper.rows, *groups["row"]], "column": [*paper.settings, *groups["column"]]}
        groups = groups.sort_values([*order], key=lambda x: x.map(order[x.name].index), ignore_index=True)
    if METHOD not in keys:
        groups["is_baseline"] = _is_baseline(groups, alike, paper)
    for score in scores:
        groups = groups.join(_differences(runs, groups, keys, alike, score), on=keys).fillna({f"{score} pairs": 0})
    return groups


def _other_metrics(results: Sequence[TrainingRun]) -> list[str]:
    """Return the metrics on dev that no run monitors, and that do not belong to one of several files."""
    left_out = {*CURVES, *(run.monitor for run in results)}
    names = [name for name in keys_of(run.before or run.best for run in results) if name not in left_out]
    return [name for name in names if not is_of_file(name, {*names, *left_out})]


def _evaluated(encoders: Sequence[Result], run: TrainingRun) -> dict[str, Mapping[str, float]]:
    """Return the metrics of the evaluations that measured the same as a run on its validation set, by label."""
    shown = {name for name in run.best if name not in CURVES and not is_of_file(name, run.best)}
    own = {one.label: one.own.metrics for one in encoders if one.own and one.own.data == run.validation}
    return {label: metrics for label, metrics in own.items() if metrics.keys() == shown}


def _shown(metrics: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Return some metrics as tables show them, NaN if they were not measured."""
    return {name: factor(name) * metrics.get(name, math.nan) for name in names}


def _described(
    job: Run, run: TrainingRun, options: Sequence[str], paper: Ablation | None, metrics: Sequence[str]
) -> dict[str, Any]:
    """Return what distinguishes a finished job from others, and its scores except those of test tasks."""
    cell, choices = run.sweep or SweepCell(), run.choices
    row = "" if cell.row is None else str(cell.row)
    setting, model = setting_of(choices), choices.get("model")
    method, simcse = job.value(METHOD), methods_file()["baselines"].get(setting)
    published, baseline = (published_score(name, setting, model) for name in (method, simcse))
    gain = published.average - baseline.average if published and baseline and method != simcse else math.nan
    return {
        "row": (paper and paper.row(row)) or row,
        "column": cell.column or "",
        **{name: job.value(name) for name in options},
        "seed": "" if run.seed is None else str(run.seed),
        "setting": setting,
        "trained on": choices.get("data"),
        "content": run.settings.get("content"),
        "is_baseline": method == simcse,
        "published": published.average if published else math.nan,
        "published difference": gain,
        "published model": published.model if published else None,
        **dict(zip(BEFORE, map(run.score, (run.before, run.test_before)), strict=True)),
        "dev": run.score(run.best),
        "test": run.score(run.test),
        **_shown(run.best, metrics),
    }


def _is_baseline(groups: pd.DataFrame, alike: Sequence[str], paper: Ablation | None) -> pd.Series:
    """Return which groups are baselines: of those that are alike, the first one that was trained and has a score.

    If the paper's row was trained with any setting, only that row is one.
    """
    trained = groups[groups["trained"] & (groups["dev n"] > 0)]
    if paper and paper.baseline in {*trained["row"]}:
        trained = trained[trained["row"] == paper.baseline]
    return groups.index.to_series().isin(trained.drop_duplicates(alike).index)


def _label(group: Mapping[Any, Any], options: Sequence[str]) -> str:
    """Return the name of a group in notes and figures."""
    values = {name: group[name] for name in options if isinstance(group[name], str)}
    parts = [group["row"], group["column"], *(v if n == METHOD else f"{n}={v}" for n, v in values.items())]
    return ", ".join(filter(None, parts)) or "all jobs"


def margin(differences: pd.Series) -> float:
    """Return half the width of the t-interval of the mean of differences by seed; NaN for fewer than two seeds.

    The interval excludes 0 if the p-value of the paired t-test is below 1 - CONFIDENCE.
    """
    return float(t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1) * differences.sem())


def _differences(
    runs: pd.DataFrame, groups: pd.DataFrame, keys: list[str], alike: list[str], score: str
) -> pd.DataFrame:
    """Return the differences of a score between each group and its baseline, by `keys`: see Sweep.groups."""
    means = runs[runs["seed"] != ""].groupby([*keys, "seed"], sort=False)[score].mean().reset_index()
    means = means.merge(groups[[*keys, "is_baseline"]])
    baseline = means.loc[means["is_baseline"], [*alike, "seed", score]]
    pairs = means[~means["is_baseline"]].merge(baseline, on=[*alike, "seed"], suffixes=("", " of the baseline"))
    pairs["difference"] = pairs[score] - pairs[f"{score} of the baseline"]
    found = pairs.dropna(subset="difference").groupby(keys)["difference"].agg(["mean", margin, "count", list])
    return found.set_axis([f"{score} {name}" for name in ("difference", "margin", "pairs", "differences")], axis=1)
