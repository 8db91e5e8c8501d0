"""Tables of encoders' scores x 100, with the paper's rows where they are known."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import pandas as pd

from simcse_pl.data.senteval.bundle import ORIGINAL_SIZES
from simcse_pl.data.senteval.sts_sets import STS_TASKS
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS
from simcse_pl.reports.paper import PaperRow, find_row
from simcse_pl.results.evaluation_results import Aggregation, Correlations, Metric, Result, StsScores
from simcse_pl.utils.tables import Table

_METRICS: dict[Metric, str] = {"spearman": "Spearman", "pearson": "Pearson"}
_AGGREGATIONS: dict[Aggregation, str] = {
    "all": "all pairs of a task at once",
    "mean": "mean over a task's subsets",
    "wmean": "mean over a task's subsets, weighted by size",
}

_PAPERS_CLASSIFIER = "pytorch"

Scores = Mapping[str, Mapping[str, float]]  # by label, then by task


def sts_scores(
    results: Sequence[Result], aggregation: Aggregation = "all", metric: Metric = "spearman", regressor: bool = False
) -> dict[str, dict[str, float]]:
    """Return STS scores x 100 by label and task; the name of another split than test is appended to the task."""

    def correlations(scores: StsScores) -> Correlations:
        return (scores.regressor or Correlations()) if regressor else getattr(scores, aggregation)  # type: ignore[no-any-return]

    scores = {r.label: {_column(s.task, s.split): getattr(correlations(s), metric) for s in r.sts} for r in results}
    return {label: {t: 100 * v for t, v in own.items() if v is not None} for label, own in scores.items()}


def sts_table(
    results: Sequence[Result], aggregation: Aggregation = "all", metric: Metric = "spearman", regressor: bool = False
) -> Table | None:
    """Return STS scores with one row per encoder and one column per task, as in Tables 5 and B.3.

    Scores depend strongly on these choices (appendix B), so the title names them.

    Args:
        results: results of any number of encoders.
        aggregation: `all` (all pairs of a task at once), `mean` (over subsets) or `wmean` (over subsets,
            weighted by size).
        metric: `spearman` or `pearson`.
        regressor: use the scores of a regressor trained on top, which STS-B and SICK-R have.

    Returns:
        The table; None without scores.

    Raises:
        UserError: a result names a row that the paper does not have.
    """
    scores = sts_scores(results, aggregation, metric, regressor)
    comparable = metric == "spearman" and not regressor
    paper = {r.label: find_row(r, "sts", aggregation) for r in results if comparable}
    failures = {} if regressor else _failures(results, STS_TASKS)
    frame = _frame(scores, paper, failures, STS_TASKS)
    if frame is None:
        return None
    name = "_".join(["sts", *["pearson"] * (metric == "pearson"), *["regressor"] * regressor])
    splits = " and ".join(sorted({s.split for r in results for s in r.sts}))
    setting = "a regressor trained on top" if regressor else f"{_AGGREGATIONS[aggregation]}, no regressor"
    pairs = [{_column(s.task, s.split): s.pairs for s in r.sts} for r in results]
    notes = [*_sizes("pairs", pairs, frame), *failure_notes(failures)]
    return Table(name, f"STS, {splits or 'test'}: {_METRICS[metric]} x 100, {setting}", frame, notes=notes)


def subset_table(results: Sequence[Result]) -> Table | None:
    """Return Spearman by subset of STS12 to STS16, with the aggregations below, one column per encoder."""
    rows: dict[tuple[str, str], dict[str, float | None]] = {}
    pairs: dict[tuple[str, str], int | None] = {}
    for result in results:
        for scores in (scores for scores in result.sts if len(scores.subsets) > 1):
            task = _column(scores.task, scores.split)
            parts = {name: (own.pairs, own.spearman) for name, own in scores.subsets.items()}
            wholes = {f"({name})": (scores.pairs, getattr(scores, name).spearman) for name in _AGGREGATIONS}
            for name, (count, spearman) in (parts | wholes).items():
                pairs[task, name] = count
                rows.setdefault((task, name), {})[result.label] = None if spearman is None else 100 * spearman
    if not rows:
        return None
    frame = pd.DataFrame({"task": [task for task, _ in rows], "subset": [subset for _, subset in rows]})
    frame["pairs"] = pd.Series(list(pairs.values()), dtype="Int64")
    for label in keys_of(rows.values()):
        frame[label] = pd.Series([own.get(label) for own in rows.values()], dtype=float)
    notes = [f"({name}): {what}" for name, what in _AGGREGATIONS.items()]
    decimals = {column: 0 if column == "pairs" else 2 for column in frame}
    return Table("sts_subsets", "STS, subset by subset: Spearman x 100, no regressor", frame, decimals, notes)


def transfer_table(results: Sequence[Result]) -> Table | None:
    """Return transfer scores with one row per encoder and one column per task, as in Table E.1; None without scores.

    A column names SentEval's classifier, because scores of the two differ by some points.

    Raises:
        UserError: a result names a row that the paper does not have.
    """
    scores = {r.label: {t.task: 100 * t.accuracy for t in r.transfer if t.accuracy is not None} for r in results}
    paper = {result.label: find_row(result, "transfer", None) for result in results}
    failures = _failures(results, TRANSFER_TASKS)
    frame = _frame(scores, paper, failures, TRANSFER_TASKS)
    if frame is None:
        return None
    f1 = {r.label: {t.task: 100 * t.f1 for t in r.transfer if t.f1 is not None and t.task in frame} for r in results}
    for task in keys_of(f1.values()):
        values = pd.Series([f1.get(label, {}).get(task) for label in frame["encoder"]], dtype=float)
        frame.insert(list(frame).index(task) + 1, f"{task} F1", values)
    classifiers = {row.label: _PAPERS_CLASSIFIER for row in paper.values() if row}
    classifiers |= {result.label: task.classifier for result in results for task in result.transfer}
    frame.insert(1, "classifier", [classifiers.get(label) for label in frame["encoder"]])
    protocols = {task.task: task.protocol for result in results for task in result.transfer if task.protocol}
    by_protocol = [
        f"{', '.join(task for task, own in protocols.items() if own == protocol)}: {protocol}"
        for protocol in dict.fromkeys(protocols.values())
    ]
    rows = [{task.task: task.rows for task in result.transfer} for result in results]
    notes = [*by_protocol, *_sizes("rows", rows, frame), *failure_notes(failures)]
    return Table("transfer", "Transfer: accuracy x 100, and F1 x 100", frame, notes=notes)


def keys_of(groups: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the keys of all groups in the order in which they first appear."""
    return list(dict.fromkeys(key for group in groups for key in group))


def shared_tasks(scores: Sequence[Mapping[str, float]], tasks: tuple[str, ...]) -> list[str]:
    """Return the tasks that are common to all encoders with any of `tasks`.

    Args:
        scores: one mapping per encoder, by task.
        tasks: the tasks to consider.
    """
    measured = [own for own in scores if any(task in own for task in tasks)]
    return [task for task in tasks if measured and all(task in own for own in measured)]


def failure_notes(failures: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a line for each task that could not be measured, with the reason and the encoders.

    Args:
        failures: reasons by label and task.
    """
    labels: dict[tuple[str, str], list[str]] = {}
    for label, own in failures.items():
        for failure in own.items():
            labels.setdefault(failure, []).append(label)
    return [f"failed: {task}: {why} ({'; '.join(own)})" for (task, why), own in labels.items()]


def _frame(
    scores: Scores,
    paper: Mapping[str, PaperRow | None],
    failures: Mapping[str, Mapping[str, str]],
    tasks: tuple[str, ...],
) -> pd.DataFrame | None:
    """Return encoders that have scores or failures, with the paper's row below its encoder, and averages.

    `Avg` is over all seven tasks, `Avg of k` over the k tasks that all encoders have.
    """
    shown = [label for label in scores if scores[label] or failures.get(label)]
    measured = keys_of(scores[label] for label in shown)
    failed = keys_of(failures.get(label, {}) for label in shown)
    columns = [*(task for task in tasks if task in {*measured, *failed}), *(t for t in measured if t not in tasks)]
    rows: dict[str, Mapping[str, float]] = {}
    for label in shown:
        rows[label] = scores[label]
        if (row := paper.get(label)) and not row.figures.keys().isdisjoint(scores[label]):
            rows.pop(row.label, None)  # with several encoders, it is below the last
            rows[row.label] = row.figures
    if not rows:
        return None
    shared = shared_tasks([scores[label] for label in shown], tasks)
    numbers = {task: [own.get(task) for own in rows.values()] for task in columns}
    if any(all(task in scores[label] for task in tasks) for label in shown):
        numbers["Avg"] = [own.get("Avg", _average(own, tasks)) for own in rows.values()]
    if 1 < len(shared) < len(tasks):
        numbers[f"Avg of {len(shared)}"] = [_average(own, shared) for own in rows.values()]
    return pd.DataFrame({"encoder": list(rows)} | {n: pd.Series(values, dtype=float) for n, values in numbers.items()})


def _average(scores: Mapping[str, float], tasks: Sequence[str]) -> float | None:
    return fmean(scores[task] for task in tasks) if all(task in scores for task in tasks) else None


def _column(task: str, split: str) -> str:
    return task if split == "test" else f"{task} {split}"


def _failures(results: Sequence[Result], tasks: tuple[str, ...]) -> dict[str, dict[str, str]]:
    return {result.label: {t: why for t, why in result.failed.items() if t in tasks} for result in results}


def _sizes(what: str, sizes: Sequence[Mapping[str, int | None]], frame: pd.DataFrame) -> list[str]:
    """Return a note with the size of each task, and the original size if it differs."""
    parts = []
    for task in frame:
        counts = list(dict.fromkeys(str(own[task]) for own in sizes if own.get(task) is not None))
        original = ORIGINAL_SIZES.get((task, "test"))
        if counts:
            differs = original is not None and counts != [str(original)]
            parts.append(f"{task} {' or '.join(counts)}" + f" (the original: {original})" * differs)
    return [f"{what}: {', '.join(parts)}"] if parts else []
