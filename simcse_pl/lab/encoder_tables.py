"""Tables of scores x 100, with the paper's rows where they are known; of geometry, neighbours and own data."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from simcse_pl.evaluation.results import (
    PROBING_TASKS,
    TRANSFER_TASKS,
    Aggregation,
    CorrelationMetric,
    Result,
    StsScores,
    SuiteResults,
)
from simcse_pl.evaluation.sts import STS_TASKS
from simcse_pl.lab.published import PaperRow, find_row, row_of_run
from simcse_pl.lab.read_runs import keys_of
from simcse_pl.results import TrainingRun, by_file, decimals, scale_note
from simcse_pl.run_table import metric_frame
from simcse_pl.utils.tables import Table

_AGGREGATIONS: dict[Aggregation, str] = {
    "all": "all pairs of a task at once",
    "mean": "mean over a task's subsets",
    "wmean": "mean over a task's subsets, weighted by size",
}
# By the name in results.json: the name in the table, and the number of decimals.
_GEOMETRY = {
    **{"alignment": ("alignment", 3), "uniformity": ("uniformity", 3)},
    **{"mean_cosine": ("mean cosine", 3), "effective_rank": ("effective rank", 1)},
}
_SPECTRUM = {
    **{"gram_sum": ("Sum(WW^T)", 0), "largest_eigenvalue": ("largest eigenvalue", 1)},
    **{"trace": ("trace", 0), "nonnegative": ("share >= 0", 3)},
}


def sts_scores(
    results: Sequence[Result], aggregation: Aggregation = "all", metric: CorrelationMetric = "spearman"
) -> pd.DataFrame:
    """Return STS scores x 100, one row per label and one column per task, named with its split unless it is `test`."""
    return _by_label(results, lambda r: {_column(s): getattr(getattr(s, aggregation), metric) for s in r.sts})


def sts_table(
    results: Sequence[Result], aggregation: Aggregation = "all", metric: CorrelationMetric = "spearman"
) -> Table | None:
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
    return Table(name, title, frame, notes=_sizes("pairs", pairs, frame), best="column")


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
    name, more = ("probing", "") if probing else ("transfer", ", and F1 x 100")
    return Table(name, f"{name.capitalize()}: accuracy x 100{more}", frame, notes=notes, best="column")


def benchmark_table(results: Sequence[Result]) -> Table | None:
    """Return the main scores of mteb's tasks x 100, one row per task and one column per encoder; None without scores.

    The last rows are the means that the leaderboard shows: over the tasks, and over the means of the types of task.
    """
    measured = {result.label: result.benchmarks for result in results if result.benchmarks}
    if not measured:
        return None
    scores = {label: {(t.task, t.type, t.metric): 100 * t.score for t in tasks} for label, tasks in measured.items()}
    frame = pd.DataFrame(scores).rename_axis(["task", "type", "metric"])
    if len(frame) > 1:
        types = frame.groupby(level="type").agg(lambda scores: scores.mean(skipna=False))
        frame.loc["mean of tasks", "", ""] = frame.mean(skipna=False)
        frame.loc["mean of types", "", ""] = types.mean(skipna=False)
    return Table("mteb", "MTEB: main score x 100", frame.reset_index(), best="row")


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
    counts = {task: {own[task] for own in sizes if own.get(task) is not None} for task in frame}
    parts = [f"{task} {' or '.join(map(str, found))}" for task, found in counts.items() if found]
    return [f"{what}: {', '.join(parts)}"] if parts else []


def geometry_tables(results: Sequence[Result]) -> list[Table]:
    """Return a table of alignment, uniformity and isotropy, and one of the spectrum; one row per encoder.

    The spectrum has the measures of section 5 of the paper.
    """
    measured = {result.label: result.geometry for result in results if result.geometry is not None}
    if not measured:
        return []
    data = {label: f"{g.data}: {g.sentences} sentences, {g.positives} positives" for label, g in measured.items()}
    where, notes = _in_common(data)
    values = pd.DataFrame([g.model_dump(include={*_GEOMETRY, *_SPECTRUM}) for g in measured.values()], dtype=float)
    tables = []
    share = "share >= 0: fraction of entries of WW^T"
    for name, measures, own in (("geometry", _GEOMETRY, []), ("spectrum", _SPECTRUM, [share])):
        digits = {name: least if least < 3 else decimals(name, values[own]) for own, (name, least) in measures.items()}
        frame = values[[*measures]].set_axis([*digits], axis=1)
        frame.insert(0, "encoder", list(measured))
        tables.append(Table(name, f"{name.capitalize()}{where}", frame, digits, [*own, *notes]))
    return tables


def retrieval_table(results: Sequence[Result]) -> Table | None:
    """Return queries and the nearest sentences of every encoder, as in Table 8 of the paper; None without results."""
    searched = {result.label: result.retrieval for result in results if result.retrieval is not None}
    by_label = {
        label: {q.query: [q.query, *(near.sentence for near in q.neighbours)] for q in retrieval.queries}
        for label, retrieval in searched.items()
    }
    parts = []
    for query in keys_of(by_label.values()):
        part = pd.DataFrame({label: pd.Series(rows.get(query, []), dtype=object) for label, rows in by_label.items()})
        part.insert(0, "", ["query", *(f"#{rank}" for rank in range(1, len(part)))])
        parts.append(part)
    if not parts:
        return None
    corpora = {
        label: f"{Path(retrieval.corpus).name}: {retrieval.sentences} sentences"
        for label, retrieval in searched.items()
    }
    where, notes = _in_common(corpora, " in ")
    return Table("retrieval", f"The nearest sentences{where}", pd.concat(parts, ignore_index=True), notes=notes)


def own_data_table(results: Sequence[Result]) -> Table | None:
    """Return the metrics on own data, one row per encoder and file; None without results."""
    measured = {result.label: result.own for result in results if result.own is not None}
    if not measured:
        return None
    rows = {(label, file): values for label, data in measured.items() for file, values in by_file(data.metrics).items()}
    metrics = keys_of(rows.values())
    frame, digits = metric_frame([*rows.values()], metrics)
    names = pd.DataFrame([*rows], columns=["encoder", "file"])
    frame = (names if names["file"].any() else names.drop(columns="file")).join(frame)
    where, notes = _in_common({label: data.data for label, data in measured.items()})
    title = f"Own data{where}"
    if scale := scale_note(*metrics):
        title += f" ({scale})"
    return Table("own_data", title, frame, digits, notes, best="column")


def _in_common(texts: Mapping[str, str], word: str = " on ") -> tuple[str, list[str]]:
    """Return the text for the title if it is the same for all encoders, and otherwise a note per encoder."""
    if len(set(texts.values())) == 1:
        return word + next(iter(texts.values())), []
    return "", [f"{label}{word}{text}" for label, text in texts.items()]


def encoder_tables(results: Sequence[Result], aggregation: Aggregation = "all") -> list[Table]:
    """Return every table that has content, of results with different labels; the first names the tasks that failed."""
    every = [part for result in results for part in result.results_by_dim().values()]
    tables = [
        sts_table(every, aggregation),
        sts_table(results, aggregation, metric="pearson"),
        transfer_table(results),
        transfer_table(results, probing=True),
        benchmark_table(results),
        *geometry_tables(results),
        retrieval_table(results),
        own_data_table(every),
    ]
    shown = [table for table in tables if table is not None]
    for table in shown:
        table.notes.extend(f"warning: {text} ({result.label})" for result in results for text in result.warnings)
    if shown:
        shown[0].notes.extend(failure_notes({result.label: result.failed for result in results}))
    return shown


def task_tables(run: TrainingRun, measured: SuiteResults) -> list[Table]:
    """Return the tables of a run's test tasks: STS and transfer, with the paper's row that the run repeats."""
    content = dict(measured) | {"sts": [scores for scores in measured.sts if scores.task in run.sts]}
    results = [Result(**content, label="this run", paper=row_of_run(run))]
    return [table for table in (sts_table(results), transfer_table(results)) if table]
