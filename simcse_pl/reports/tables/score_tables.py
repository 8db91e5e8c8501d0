"""Tables of encoders' scores x 100, with the paper's rows where they are known."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.data.senteval.transfer_sets import PROBING_TASKS, TRANSFER_TASKS
from simcse_pl.reports.published import PaperRow, find_row
from simcse_pl.results.evaluation_results import Metric, Result, StsScores
from simcse_pl.results.metrics import Aggregation
from simcse_pl.utils.tables import Table

_AGGREGATIONS: dict[Aggregation, str] = {
    "all": "all pairs of a task at once",
    "mean": "mean over a task's subsets",
    "wmean": "mean over a task's subsets, weighted by size",
}


def sts_scores(
    results: Sequence[Result], aggregation: Aggregation = "all", metric: Metric = "spearman"
) -> pd.DataFrame:
    """Return STS scores x 100, one row per label and one column per task, named with its split unless it is `test`."""
    return _by_label(results, lambda r: {_column(s): getattr(getattr(s, aggregation), metric) for s in r.sts})


def sts_table(results: Sequence[Result], aggregation: Aggregation = "all", metric: Metric = "spearman") -> Table | None:
    """Return STS scores with one row per encoder and one column per task, as in Tables 5 and B.3; None without scores.

    Scores depend strongly on aggregation and metric (appendix B), so the title names them.
    """
    scores = sts_scores(results, aggregation, metric)
    paper = {r.label: find_row(r, "sts", aggregation) for r in results if metric == "spearman"}
    frame = _frame(scores, paper, results, STS_TASKS)
    if frame is None:
        return None
    name = "sts_pearson" if metric == "pearson" else "sts"
    splits = " and ".join(sorted({s.split for r in results for s in r.sts})) or "test"
    title = f"STS, {splits}: {metric.capitalize()} x 100, {_AGGREGATIONS[aggregation]}, no regressor"
    pairs = [{_column(s): s.pairs for s in r.sts} for r in results]
    return Table(name, title, frame, notes=_sizes("pairs", pairs, frame))


def transfer_table(results: Sequence[Result], probing: bool = False) -> Table | None:
    """Return transfer scores with one row per encoder and one column per task, as in Table E.1; None without scores.

    With `probing`, the scores are those of the probing tasks. A column names SentEval's classifier, because their
    scores differ by some points.
    """
    tasks = PROBING_TASKS if probing else TRANSFER_TASKS
    paper = {} if probing else {result.label: find_row(result, "transfer", None) for result in results}
    measured = {result.label: [task for task in result.transfer if task.task in tasks] for result in results}
    scores = _by_label(results, lambda result: {task.task: task.accuracy for task in measured[result.label]})
    frame = _frame(scores, paper, results, tasks)
    if frame is None:
        return None
    f1 = _by_label(results, lambda result: {task.task: task.f1 for task in measured[result.label]})
    for task in f1.columns.intersection(frame.columns):
        frame.insert(frame.columns.get_loc(task) + 1, f"{task} F1", frame["encoder"].map(f1[task]))
    classifiers = {row.label: "pytorch" for row in paper.values() if row}
    classifiers |= {label: task.classifier for label, scored in measured.items() for task in scored}
    frame.insert(1, "classifier", frame["encoder"].map(classifiers))
    protocols = pd.Series({task.task: task.protocol for scored in measured.values() for task in scored}, dtype=object)
    notes = [f"{', '.join(names.index)}: {protocol}" for protocol, names in protocols.groupby(protocols, sort=False)]
    rows = [{task.task: task.rows for task in scored} for scored in measured.values()]
    notes += _sizes("rows", rows, frame)
    if probing:
        return Table("probing", "Probing: accuracy x 100", frame, notes=notes)
    return Table("transfer", "Transfer: accuracy x 100, and F1 x 100", frame, notes=notes)


def benchmark_table(results: Sequence[Result]) -> Table | None:
    """Return the main scores of mteb's tasks x 100, one row per task and one column per encoder; None without scores.

    The last rows are the means that the leaderboard shows: over the tasks, and over the means of the types of task.
    """
    columns = ["task", "type", "metric"]
    frames = [
        pd.DataFrame(
            [(task.task, task.type, task.metric, 100 * task.score) for task in result.benchmarks],
            columns=[*columns, result.label],
        ).set_index(columns)
        for result in results
        if result.benchmarks
    ]
    if not frames:
        return None
    frame = pd.concat(frames, axis="columns")
    if len(frame) > 1:
        types = frame.groupby(level="type").agg(lambda scores: scores.mean(skipna=False))
        frame.loc["mean of tasks", "", ""] = frame.mean(skipna=False)
        frame.loc["mean of types", "", ""] = types.mean(skipna=False)
    return Table("mteb", "MTEB: main score x 100", frame.reset_index())


def keys_of(groups: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the keys of all groups in the order in which they first appear."""
    return list(dict.fromkeys(key for group in groups for key in group))


def shared_tasks(scores: pd.DataFrame, tasks: Sequence[str]) -> list[str]:
    """Return the tasks that all rows with a score of any of `tasks` have; NaN means no score."""
    measured = scores.reindex(columns=tasks).dropna(how="all")
    return list(measured.dropna(axis="columns")) if len(measured) else []


def failure_notes(failures: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a line for each task that could not be measured, from the reasons by label and task."""
    labels: dict[tuple[str, str], list[str]] = {}
    for label, reasons in failures.items():
        for failure in reasons.items():
            labels.setdefault(failure, []).append(label)
    return [f"failed: {task}: {why} ({'; '.join(labels_of)})" for (task, why), labels_of in labels.items()]


def _by_label(results: Sequence[Result], scores: Callable[[Result], Mapping[str, float | None]]) -> pd.DataFrame:
    """Return scores x 100, one row per label, and one column per task that was measured."""
    frame = pd.DataFrame([scores(result) for result in results], index=[result.label for result in results])
    return 100 * frame.astype(float).dropna(axis="columns", how="all")


def _frame(
    scores: pd.DataFrame, paper: Mapping[str, PaperRow | None], results: Sequence[Result], tasks: tuple[str, ...]
) -> pd.DataFrame | None:
    """Return a row per encoder that has scores or failures, with the paper's row below it, and averages.

    `Avg` is over all seven tasks, `Avg of k` over the k tasks that all encoders have.
    """
    rows: dict[str, pd.Series] = {}
    failed = {result.label: [task for task in result.failed if task in tasks] for result in results}
    for label, row_scores in scores.iterrows():
        if row_scores.notna().any() or failed[label]:
            rows[label] = row_scores
        if (row := paper.get(label)) and row_scores.reindex(row.figures).notna().any():
            rows.pop(row.label, None)  # with several encoders, it is below the last
            rows[row.label] = pd.Series(row.figures)
    if not rows:
        return None
    columns = [task for task in tasks if task in scores or any(task in tasks_of for tasks_of in failed.values())]
    columns += [task for task in scores if task not in tasks]
    frame = pd.DataFrame(rows, dtype=float).T.reindex(columns=[*columns, "Avg"])
    frame["Avg"] = frame["Avg"].fillna(frame.reindex(columns=tasks).mean(axis="columns", skipna=False))
    shared = shared_tasks(scores, tasks)
    if scores.reindex(columns=tasks).isna().any(axis="columns").all():
        del frame["Avg"]
    if 1 < len(shared) < len(tasks):
        frame[f"Avg of {len(shared)}"] = frame[shared].mean(axis="columns", skipna=False)
    return frame.rename_axis("encoder").reset_index()


def _column(scores: StsScores) -> str:
    return scores.task if scores.split == "test" else f"{scores.task} {scores.split}"


def _sizes(what: str, sizes: Sequence[Mapping[str, int | None]], frame: pd.DataFrame) -> list[str]:
    """Return a note with the size of each task."""
    parts = []
    for task in frame:
        counts = {counted[task] for counted in sizes if counted.get(task) is not None}
        if counts:
            parts.append(f"{task} {' or '.join(map(str, counts))}")
    return [f"{what}: {', '.join(parts)}"] if parts else []
