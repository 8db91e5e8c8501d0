"""Tables of embedding geometry, nearest neighbours, and metrics on the user's own data."""

from collections.abc import Mapping, Sequence

import pandas as pd

from simcse_pl.reports.tables.run_table import metric_frame
from simcse_pl.reports.tables.score_tables import keys_of
from simcse_pl.results.evaluation_results import Result
from simcse_pl.results.metrics import by_file, scale_note
from simcse_pl.utils.tables import Table

# By the name in results.json: the name in the table, and the number of decimals.
_GEOMETRY = {
    "alignment": ("alignment", 3),
    "uniformity": ("uniformity", 3),
    "mean_cosine": ("mean cosine", 3),
    "effective_rank": ("effective rank", 1),
}
_SPECTRUM = {
    "gram_sum": ("Sum(WW^T)", 0),
    "largest_eigenvalue": ("largest eigenvalue", 1),
    "trace": ("trace", 0),
    "nonnegative": ("share >= 0", 3),
}


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
        digits = dict(measures.values())
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
        part.insert(0, "", ["query", *(f"#{place}" for place in range(1, len(part)))])
        parts.append(part)
    if not parts:
        return None
    corpora = {label: f"{retrieval.corpus}: {retrieval.sentences} sentences" for label, retrieval in searched.items()}
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
    scale = scale_note(*metrics)
    return Table("own_data", f"Own data{where}" + f" ({scale})" * bool(scale), frame, digits, notes)


def _in_common(texts: Mapping[str, str], word: str = " on ") -> tuple[str, list[str]]:
    """Return the text for the title if it is the same for all encoders, and otherwise a note per encoder."""
    if len(set(texts.values())) == 1:
        return word + next(iter(texts.values())), []
    return "", [f"{label}{word}{text}" for label, text in texts.items()]
